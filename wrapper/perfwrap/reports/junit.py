"""The result of `perfwrap check` as JUnit XML, which Jenkins, GitLab and other CI systems read."""

from __future__ import annotations

from xml.etree import ElementTree  # nosec B405 # it writes XML and reads none

from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.judgement import Judgement
from perfwrap.shown_text import visible

SUITE = "perfwrap check"


def text(comparison: Comparison, judgement: Judgement, strict: bool = False) -> str:
    """Return the document: a regression is a failure, runs that cannot be compared are an error."""
    failed, broken = judgement.state == "regression", judgement.state == "not comparable"
    noisy = judgement.state == "too noisy"
    counts = {
        "tests": "1",
        "failures": str(int(failed or (noisy and strict))),
        "errors": str(int(broken)),
        "skipped": str(int(noisy and not strict)),
    }
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, **counts, "time": "0"})
    seconds = f"{comparison.typical.after_ns / 1e9:.9f}" if comparison.typical else "0"
    name = visible(f"step time of {comparison.after} compared with {comparison.before}")
    case = ElementTree.SubElement(suite, "testcase", {"classname": "perfwrap", "name": name, "time": seconds})
    sentence = visible(judgement.sentence)
    if judgement.state != "ok":
        kind = "error" if broken else "skipped" if noisy and not strict else "failure"
        attributes = (
            {"message": sentence} if kind == "skipped" else {"message": sentence, "type": judgement.state}
        )
        ElementTree.SubElement(case, kind, attributes).text = sentence
    ElementTree.SubElement(case, "system-out").text = sentence
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
