"""All forms of a verdict (ringside/verdict/v1): terminal, Gradescope, Classroom 50, GitHub Actions, CSV, JUnit."""
import csv
import io
import os
import re
import time
from xml.sax.saxutils import escape, quoteattr

import cut

MARKS = {"right": "✓", "not written": "·"}
MOST_LINES = 16  # of what a case says, in a terminal


def terminal(exercise, result, lang="en"):
    """The lines that a student sees after a check of one exercise."""
    titles = {case["id"]: case["title"] for case in exercise["cases"]}
    lines = [f"{result['id']}  {cut.said(exercise['title'], lang)}: {result['status']}, "
             f"{result['score']} of {result['max']} points, {result['seconds']:.1f} s"]
    said, width = None, max(len(case["id"]) for case in result["cases"])
    for case in result["cases"]:
        if case["hidden"] and case["status"] == "right":
            continue
        lines.append(f"  {MARKS.get(case['status'], '✗')} {case['id']:<{width}} {case['score']}/{case['max']}  {titles[case['id']]}")
        says = case.get("says", [])
        if says and says[0].startswith("not judged"):
            lines.append("      " + says[0])
        elif says and says != said:
            lines += [f"      {case['status']}:" if case["status"] != "wrong" else "      seen:"] + [f"      {each}" for each in says[:MOST_LINES]]
            if len(says) > MOST_LINES:
                lines.append(f"      ... and {len(says) - MOST_LINES} more lines")
            said = says
            if case["status"] in ("crashes", "hangs") and not {"program", "language"} & set(result):
                lines.append(f"      to see where: ./exercise debug {result['id'][:2]} {case['id']}")
        if case.get("picture"):
            lines += ["", *("      " + line for line in case["picture"].strip("\n").split("\n")), ""]
        if case.get("output", "").strip():
            lines += ["      your program printed:"] + ["      | " + line for line in case["output"].strip().split("\n")[-8:]]
    hidden = sum(1 for case in exercise["cases"] if case.get("hidden"))
    public = [case for case in result["cases"] if not case["hidden"]]
    if hidden and all(case["status"] == "right" for case in public):
        runs = "runs" if hidden == 1 else "run"
        lines.append(f"  {len(public)} of {len(public)} public cases are right; {hidden} {runs} again in larger worlds after the deadline")
    if result.get("warnings"):
        lines += ["  warnings of the compiler:"] + ["  | " + line for line in result["warnings"].strip().split("\n")[:12]]
    return "\n".join(lines)


def text_of(case):
    return "\n".join(case.get("says", [])) + ("\n\n" + case["picture"] if case.get("picture") else "")


def name_of(exercise, case):
    return f"{exercise['id']}/{case['id']}" + ("/hidden" if case["hidden"] else "")


def every_case(verdict):
    for exercise in verdict["exercises"]:
        for case in exercise["cases"]:
            yield exercise, case, name_of(exercise, case)


def score(verdict):
    return sum(exercise["score"] for exercise in verdict["exercises"])


def gradescope(verdict):
    public = [case for _, case, _ in every_case(verdict) if not case["hidden"]]
    right = sum(case["status"] == "right" for case in public)
    return {"score": score(verdict), "execution_time": round(sum(each["seconds"] for each in verdict["exercises"])),
            "stdout_visibility": "hidden", "output": f"Public cases: {right} of {len(public)}.",
            "output_format": "md", "test_output_format": "text", "test_name_format": "text",
            "tests": [{"name": name.replace("/", " / "), "number": f"{exercise['id'][:2]}.{1 + exercise['cases'].index(case)}",
                       "score": case["score"], "max_score": case["max"], "status": "passed" if case["status"] == "right" else "failed",
                       "output": text_of(case), "visibility": "after_due_date" if case["hidden"] else "visible"}
                      for exercise, case, name in every_case(verdict)]}


def classroom50(verdict):
    variable = lambda name: os.environ.get(name, "")
    needed = ("CLASSROOM", "ASSIGNMENT", "SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL")
    if missing := [name for name in needed if not variable(name)]:
        raise ValueError(f"Classroom 50 needs the environment variables {', '.join(needed)}: {', '.join(missing)} is not set. "
                         "Its workflow sets them; grade in it, or choose another format")
    # A hidden case is not a test of its own there: what it takes away is taken from its public case.
    lost = {(each["id"], case["id"]): case["score"] for each in verdict["exercises"] for case in each["cases"] if case["hidden"]}
    points = lambda exercise, case: case["score"] + lost.get((exercise["id"], case["id"]), 0)
    return {"schema": "classroom50/result/v1", "classroom": variable("CLASSROOM"), "assignment": variable("ASSIGNMENT"),
            "assignment_type": variable("ASSIGNMENT_TYPE") or "individual", "owner": variable("OWNER") or verdict["student"],
            "submission": variable("SUBMISSION_TAG"),
            "commit": variable("COMMIT_URL"), "release": variable("RELEASE_URL"), "review": variable("REVIEW_URL") or variable("COMMIT_URL"),
            "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "score": score(verdict), "max-score": sum(each["max"] for each in verdict["exercises"]),
            "tests": [{"test-name": name, "passed": points(exercise, case) == case["max"], "score": points(exercise, case), "max-score": case["max"]}
                      for exercise, case, name in every_case(verdict) if not case["hidden"]]}


def actions(verdict):
    """A summary in Markdown, for GITHUB_STEP_SUMMARY."""
    lines = ["| exercise | status | points | says |", "|---|---|---|---|"]
    for exercise in verdict["exercises"]:
        says = next((case["says"][0] for case in exercise["cases"] if case.get("says")), "")
        says = " ".join(says.split()).replace("|", "\\|")  # a row is one line
        lines.append(f"| {exercise['id']} | {exercise['status']} | {exercise['score']}/{exercise['max']} | {says} |")
    return "\n".join(lines) + "\n"


NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(verdict):
    plain = lambda text: NOT_IN_XML.sub("\ufffd", text)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for exercise in verdict["exercises"]:
        failed = sum(case["status"] != "right" for case in exercise["cases"])
        lines.append(f'<testsuite name={quoteattr(exercise["id"])} tests="{len(exercise["cases"])}" failures="{failed}" errors="0">')
        for case in exercise["cases"]:
            name = name_of(exercise, case).partition("/")[2]
            lines.append(f'<testcase classname={quoteattr(exercise["id"])} name={quoteattr(name)} time="{case["seconds"]}">')
            if case["status"] != "right":
                lines.append(f'<failure message={quoteattr(case["status"])} type={quoteattr(case["status"])}>{escape(plain(text_of(case)))}</failure>')
            lines.append("</testcase>")
        lines.append("</testsuite>")
    return "\n".join(lines + ["</testsuites>", ""])


def table(verdicts):
    """CSV: a line for each student, a column for each exercise."""
    names = list(dict.fromkeys(each["id"] for verdict in verdicts for each in verdict["exercises"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["student", *names, "points"])
    for verdict in verdicts:
        points = {each["id"]: each["score"] for each in verdict["exercises"]}
        writer.writerow([verdict["student"], *(points.get(name, 0) for name in names), score(verdict)])
    return out.getvalue()
