"""The published forms of results, field by field, and a check against them.

Gradescope: https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output format".
Classroom 50: https://github.com/foundation50/classroom50/wiki/Advanced-Autograding, "The result.json contract".

A dict is an object: a field whose name ends with "?" may be absent, and there are no others. [form] is
a list of such values, a set lists the values that are allowed, a string is a regular expression.
"""
import re

NUMBER = (int, float)
TEXT_FORMAT = {"text", "html", "simple_format", "md", "ansi"}
VISIBILITY = {"hidden", "after_due_date", "after_published", "visible"}

GRADESCOPE = {
    "score?": NUMBER, "execution_time?": NUMBER, "output?": str, "output_format?": TEXT_FORMAT,
    "test_output_format?": TEXT_FORMAT, "test_name_format?": TEXT_FORMAT, "visibility?": VISIBILITY,
    "stdout_visibility?": VISIBILITY, "extra_data?": dict,
    "tests?": [{"score?": NUMBER, "max_score?": NUMBER, "status?": {"passed", "failed"}, "name?": str,
                "name_format?": TEXT_FORMAT, "number?": str, "output?": str, "output_format?": TEXT_FORMAT,
                "tags?": [str], "visibility?": VISIBILITY, "extra_data?": dict}],
    "leaderboard?": [{"name": str, "value": (int, float, str), "order?": {"asc", "desc"}}]}

CLASSROOM50 = {
    "schema": {"classroom50/result/v1"}, "classroom": ".+", "assignment": ".+", "assignment_type": {"individual", "group"},
    "owner": ".+", "submission": "submit/.+", "commit": "https://.+", "release": "https://.+", "review": "https://.+",
    "datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "graded_at?": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "score": int, "max-score": int,
    "tests": [{"test-name": ".+", "passed": bool, "score": int, "max-score": int}], "submitted_by?": dict}


def faults(value, form, where="result"):
    """What does not fit: one sentence for each fault."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            yield f"{where}: expected an object, seen {value!r}"
            return
        fields = {name.rstrip("?"): part for name, part in form.items()}
        for name in form:
            if not name.endswith("?") and name not in value:
                yield f"{where}: lacks {name}"
        for name, part in value.items():
            if name not in fields:
                yield f"{where}: has {name}, which is not in the published form"
            else:
                yield from faults(part, fields[name], f"{where}.{name}")
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield f"{where}: expected a list, seen {value!r}"
            return
        for i, each in enumerate(value):
            yield from faults(each, form[0], f"{where}[{i}]")
    elif isinstance(form, set):
        if value not in form:
            yield f"{where}: expected one of {sorted(form)}, seen {value!r}"
    elif isinstance(form, str):
        if not isinstance(value, str) or not re.fullmatch(form, value):
            yield f"{where}: expected a text like {form}, seen {value!r}"
    elif not isinstance(value, form) or (isinstance(value, bool) and form is not bool):
        yield f"{where}: expected {form}, seen {value!r}"
