"""Writers of selection tables, one file a library format."""
