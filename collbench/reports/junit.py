"""A comparison as JUnit XML: a test suite per comparison, a test case per cell (schema of the Jenkins xUnit plugin)."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from collbench.reports.comparison import sentence, summary
from collbench.verdict import ADDED, FAILED, INCONCLUSIVE, MISSING, SLOWER, Comparison, Verdict

_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FAULTS = {SLOWER: "failure", MISSING: "error", FAILED: "error", INCONCLUSIVE: "skipped", ADDED: "skipped"}


def render(comparisons: Sequence[Comparison]) -> str:
    """Return the XML: slower is a failure, missing and failed are errors, inconclusive and added are skipped.

    A comparison that cannot be answered has one more test case, "answer", with an error, so that a reader of
    JUnit never takes it for a pass.
    """
    root = ET.Element("testsuites")
    for comparison in comparisons:
        root.append(_suite(comparison))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(comparison: Comparison) -> ET.Element:
    suite = ET.Element(
        "testsuite", name=_clean(f"collbench compare {comparison.new} against {comparison.base}")
    )
    properties = ET.SubElement(suite, "properties")
    for difference in comparison.differences:
        value = f"{difference.base or 'absent'} → {difference.new or 'absent'}"
        ET.SubElement(properties, "property", name=_clean(difference.field), value=_clean(value))
    if not comparison.differences:
        suite.remove(properties)
    for cell in comparison.cells:
        suite.append(_case(cell, gate=comparison.gate))
    if comparison.status == 3:
        case = ET.SubElement(suite, "testcase", classname="collbench", name="answer")
        ET.SubElement(case, "error", message=_clean(summary(comparison)), type="cannot_say")
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    ET.SubElement(suite, "system-out").text = _clean("\n".join([*comparison.remarks, summary(comparison)]))
    return suite


def _case(cell: Verdict, *, gate: bool) -> ET.Element:
    collective, _, rest = cell.cell.partition("/")
    case = ET.Element("testcase", classname=_clean(f"collbench.{collective}"), name=_clean(rest))
    tag = _FAULTS.get(cell.verdict)
    if cell.verdict == SLOWER and not gate:
        tag = None
    if tag == "skipped":
        ET.SubElement(case, tag, message=_clean(sentence(cell)))
    elif tag:
        ET.SubElement(case, tag, message=_clean(sentence(cell)), type=cell.verdict)
    else:
        ET.SubElement(case, "system-out").text = _clean(sentence(cell))
    return case


def _clean(text: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return _ILLEGAL.sub("\ufffd", text)
