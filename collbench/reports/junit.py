"""A comparison as JUnit XML: a test suite per comparison, a test case per cell.

It follows both schemas in use: the Jenkins xUnit plugin's junit-10.xsd and the JUnit.xsd of Ant's format (Windy Road).
"""

import re
import time
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from collbench.reports.comparison import sentence, summary
from collbench.verdict import ADDED, FAILED, INCONCLUSIVE, MISSING, SLOWER, Comparison, Verdict

_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FAULTS = {SLOWER: "failure", MISSING: "error", FAILED: "error", INCONCLUSIVE: "skipped", ADDED: "skipped"}


def render(comparisons: Sequence[Comparison]) -> str:
    """Return the XML: slower is a failure, missing and failed are errors, inconclusive and added are skipped.

    A comparison that cannot be answered has one more test case, "answer", with an error, so that a reader of
    JUnit never takes it for a pass. The time of a test case is what was measured on the judged side, seconds.
    """
    root = ET.Element("testsuites")
    for number, comparison in enumerate(comparisons):
        root.append(_suite(comparison, number))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(comparison: Comparison, number: int) -> ET.Element:
    """Return one suite: properties, test cases, then both outputs, as the stricter of the two schemas orders them."""
    suite = ET.Element(
        "testsuite",
        name=_clean(f"collbench compare {comparison.new} against {comparison.base}"),
        package="collbench",
        id=str(number),
        timestamp=_timestamp(comparison.started),
        hostname=_clean(comparison.host).strip() or "localhost",
    )
    properties = ET.SubElement(suite, "properties")
    for difference in comparison.differences:
        value = f"{difference.base or 'absent'} → {difference.new or 'absent'}"
        ET.SubElement(properties, "property", name=_clean(difference.field), value=_clean(value))
    for cell in comparison.cells:
        suite.append(_case(cell, gate=comparison.gate))
    if comparison.status == 3:
        case = ET.SubElement(suite, "testcase", classname="collbench", name="answer", time="0")
        ET.SubElement(case, "error", message=_clean(summary(comparison)), type="cannot_say")
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("time", f"{sum(c.new_s or 0.0 for c in comparison.cells):.3f}")
    lines = [sentence(c) for c in comparison.cells if _fault(c, gate=comparison.gate) is None]
    lines += [*comparison.remarks, summary(comparison)]
    ET.SubElement(suite, "system-out").text = _clean("\n".join(lines))
    ET.SubElement(suite, "system-err")
    return suite


def _timestamp(started: str) -> str:
    """Return the time in UTC without a zone, as the Ant schema wants it; now where the run does not state it."""
    found = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", started)
    return found[0] if found else time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


def _fault(cell: Verdict, *, gate: bool) -> str | None:
    return None if cell.verdict == SLOWER and not gate else _FAULTS.get(cell.verdict)


def _case(cell: Verdict, *, gate: bool) -> ET.Element:
    collective, _, rest = cell.cell.partition("/")
    case = ET.Element("testcase", classname=_clean(f"collbench.{collective}"), name=_clean(rest),
                      time=f"{cell.new_s or 0.0:.9f}")  # fmt: skip
    tag = _fault(cell, gate=gate)
    if tag == "skipped":
        ET.SubElement(case, tag, message=_clean(sentence(cell)))
    elif tag:
        ET.SubElement(case, tag, message=_clean(sentence(cell)), type=cell.verdict)
    return case


def _clean(text: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return _ILLEGAL.sub("\ufffd", text)
