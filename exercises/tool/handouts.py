#!/usr/bin/env python3
"""Checks the handouts, exercises/NN-slug/handout.en.md and handout.zh.md, and the table of exercises in
exercises/README.md and README.zh.md, and that exercises/rubric.md answers each question.

    handouts.py [NN ...]     prints each fault and exits 1 if there are any
    handouts.py --table      writes the tables again, from exercise.json

Each language has the same sections, and says the same in its own sentences: numbers, commands, names in backticks,
tables and code blocks agree, section by section. Numbers up to 12 may be words in one language; a line of code with
Chinese words agrees with its English line if its numbers do. Points, hours, cases and the output of a check agree
with exercise.json. Links and the figure exist beside the handout, because it is exported with them. A term of
docs/glossary.md stands in the Chinese text under its Chinese name, or as the English term.

An exercise has a handout in each language in which exercise.json gives it a title.
"""
import json
import re
import sys
from pathlib import Path

import cut

ROOT = Path(__file__).resolve().parents[2]
RUBRIC = ROOT / "exercises/rubric.md"  # for instructors: no export has it
LANGUAGES = ["en", "zh"]
# The sections, in this order. OPTIONAL ones may stand anywhere after the first.
SECTIONS = ["Why", "What you write", "What right means", "A check", "In the debugger", "Measure it", "Two questions", "Time and CS336"]
OPTIONAL = ["A worked example", "Sources"]
CHINESE = {"Why": "为什么", "What you write": "要写什么", "What right means": "评分标准", "A check": "运行检查", "In the debugger": "用调试器查看",
           "Measure it": "动手测量", "Two questions": "思考题", "Time and CS336": "用时与 CS336", "A worked example": "算一个例子", "Sources": "资料来源"}
ENGLISH = {name: section for section, name in CHINESE.items()}
LONGEST = 240  # lines
SMALL = 12  # numbers up to this one may be words
# Terms of the glossary that are everyday words, too.
EVERYDAY = {"work", "plan", "position", "unit", "stage", "storage"}


# ---- Handouts

def head(exercise, lang):
    """The title, and the line with points and hours."""
    number, points, hours = exercise["id"].split("-")[0], exercise["points"], exercise["hours"]
    needs = [f"`{each}`" for each in exercise["needs"]]
    if lang == "en":
        facts = [f"{points} point{'s' * (points != 1)}", f"{hours} hour{'s' * (hours != 1)}"] + ["needs " + ", ".join(needs)] * bool(needs)
    else:
        facts = [f"{points} 分", f"{hours} 小时"] + ["先完成 " + "、".join(needs)] * bool(needs)
    return f"# {number}. {exercise['title'][lang]}", " · ".join(facts)


class Handout:
    """The sections of a handout by their English names; "" is what stands before the first one."""

    def __init__(self, text):
        self.lines = text.split("\n")
        headings = [line[3:] for line in self.lines if line.startswith("## ")]
        self.sections = [ENGLISH.get(each, each) for each in headings]
        bodies = dict(zip(["", *self.sections], re.split(r"^## .*\n", text, flags=re.M)))
        self.code = {name: re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", body, flags=re.M) for name, body in bodies.items()}
        self.prose = {name: re.sub(r"^    .*\n", "", body, flags=re.M) for name, body in bodies.items()}

    def names(self, section):
        return set(re.findall(r"`([^`]+)`", self.prose[section]))

    def numbers(self, section):
        """Without those that may be words, and without links, whose targets are paths."""
        prose = re.sub(r"\]\([^)]*\)", "]", self.prose[section]).replace(",", " ").replace("\u202f", "")
        found = re.findall(r"\d+(?:\.\d+)?", prose)
        return {each for each in found if "." in each or int(each) > SMALL}

    def rows(self, section):
        return len(re.findall(r"^\|", self.prose[section], flags=re.M))

    def all_of(self, section):
        return self.prose[section] + "".join(self.code[section])


def faults_of(folder, exercise, lang):
    file = folder / f"handout.{lang}.md"
    handout, text = Handout(file.read_text()), file.read_text()
    title, facts = head(exercise, lang)
    if handout.lines[0] != title or handout.lines[2:3] != [facts]:
        yield f"it must begin with \"{title}\", an empty line, and \"{facts}\""
    if [each for each in handout.sections if each not in OPTIONAL] != SECTIONS or len(set(handout.sections)) < len(handout.sections):
        yield (f"its sections are {handout.sections}, expected {SECTIONS}" + f", and {OPTIONAL} where you need them"
               + " (in Chinese: " + ", ".join(CHINESE[each] for each in SECTIONS + OPTIONAL) + ")" * (lang == "zh"))
        return
    if len(handout.lines) > LONGEST:
        yield f"it has {len(handout.lines)} lines, at most {LONGEST} are read"
    for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"`[^`\n]*`", "", text)):
        if "://" not in target and not (folder / target).is_file():
            yield f"it links to {target}, which is not beside it (it is exported without the rest of the tree)"
    if "With Ringside built" in text:
        yield "it says \"With Ringside built\": students have an export, and type ./exercise ringside ..."
    if (folder / "figure.json").exists() and not re.search(r"!\[[^\]]+\]\(figure\.svg\)", text):
        yield "it does not show figure.svg, with a description in ![...]"
    for each in exercise["cut"]:
        for name in (Path(each["file"]).name, each["function"].split("(")[0].split("::")[-1]):
            if name not in handout.all_of("What you write"):
                yield f"\"What you write\" does not name {name}, which the student writes"
    shown = re.findall(r"^\| `([\w-]+)` \| (\d+) \| ([\d, ]*) \| ([\d, ]*?) ?\|", handout.prose["What right means"], flags=re.M)
    worlds = lambda numbers: ", ".join(map(str, numbers))
    expected = [(case["id"], str(case["points"]), worlds(case["worlds"]), worlds(case.get("hidden", []))) for case in exercise["cases"]]
    if shown != expected:
        yield f"its table of cases has {shown}, exercise.json has {expected}"
    yield from faults_of_output("".join(handout.code["A check"]), exercise)
    for name in (each.split(": ")[-1] for each in exercise["cs336"]):
        if name not in handout.all_of("Time and CS336"):
            yield f"\"Time and CS336\" does not name {name}"


def faults_of_output(output, exercise):
    """Whether ./exercise check could have printed this."""
    titles = {case["id"]: (str(case["points"]), case["title"]) for case in exercise["cases"]}
    for id, points, title in re.findall(r"^ +[✓✗·] ([\w-]+) +\d+/(\d+)  (.*)$", output, flags=re.M):
        if titles.get(id) != (points, title):
            yield f"its output shows case {id} with {points} points, \"{title}\"; exercise.json has {titles.get(id)}"
    points = exercise["points"]
    last = f"{exercise['id']}  {cut.said(exercise['title'], 'en')}: right, {points} of {points} points"
    if last not in output:
        yield f"it does not show what a check prints for a right answer: expected the line \"{last}\""
    if not any(wrong["says"] in output for wrong in exercise["wrong"]):
        yield "it shows no sentence about a wrong answer of exercise.json"


def agree(english, chinese):
    """Whether two blocks of code are the same, but for words in lines that have Chinese ones."""
    here, there = english.split("\n"), chinese.split("\n")
    numbers = lambda line: re.findall(r"\d+(?:\.\d+)?", line)
    return len(here) == len(there) and all(
        left == right or re.search(r"[\u4e00-\u9fff]", right) and numbers(left) == numbers(right) for left, right in zip(here, there))


def differences(english, chinese):
    """Between two handouts whose sections are as they must be."""
    if english.sections != chinese.sections:
        yield f"the sections are {english.sections} in English, {chinese.sections} in Chinese"
        return
    for section in english.prose:
        here, there, where = english.code[section], chinese.code[section], f"\"{section or 'the head'}\""
        if len(here) != len(there) or not all(map(agree, here, there)):
            yield f"{where}: the code blocks differ between the languages"
        if english.rows(section) != chinese.rows(section):
            yield f"{where}: the tables have {english.rows(section)} rows in English, {chinese.rows(section)} in Chinese"
        for what, left, right in (("number", english.numbers(section), chinese.numbers(section)), ("name", english.names(section), chinese.names(section))):
            for each, sign in [(each, "only in English") for each in left - right] + [(each, "only in Chinese") for each in right - left]:
                yield f"{where}: the {what} {each} is {sign}"
    for term, name in lacking_terms("".join(english.prose.values()), "".join(chinese.prose.values())):
        yield f"the English text speaks of a {term}, but the Chinese one lacks {name} (docs/glossary.md)"


def lacking_terms(english, chinese, everyday=EVERYDAY):
    """(term, Chinese name) of the terms of the glossary in `english` that `chinese` has under neither name."""
    rows = re.findall(r"^\| ([\w -]+?) \|.*\| ([^|]+?) \|$", (ROOT / "docs/glossary.md").read_text(), flags=re.M)
    english = re.sub(r"`[^`]*`", "", english)
    for term, name in rows:
        if term not in everyday and re.search(rf"\b{term}s?\b(?!\()", english, flags=re.I) and name not in chinese and term not in chinese.lower():
            yield term, name


def faults_of_figure(folder):
    if not (folder / "figure.svg").exists():
        yield "figure.json is not drawn yet: exercises/tool/figures.py build/release/bin/ringside"
    elif re.search(r"<text[^>]*>[^<]*[^\W\d_]", (folder / "figure.svg").read_text()):
        yield "figure.svg has words: both languages share it"


def faults(exercise):
    folder = exercise["folder"]
    files = {lang: folder / f"handout.{lang}.md" for lang in exercise["title"]}
    for lang, file in files.items():
        if not file.exists():
            yield f"handout.{lang}.md is missing"
        else:
            yield from (f"handout.{lang}.md: {fault}" for fault in faults_of(folder, exercise, lang))
    if (folder / "figure.json").exists():
        yield from faults_of_figure(folder)
    if len(files) == len(LANGUAGES) and all(file.exists() for file in files.values()):
        english, chinese = (Handout(files[lang].read_text()) for lang in LANGUAGES)
        if all([each for each in handout.sections if each not in OPTIONAL] == SECTIONS for handout in (english, chinese)):
            yield from differences(english, chinese)


# ---- The tables of README.md

def tracks_of(exercises):
    """The tracks of tracks.json beside these exercises; one without numbers has all."""
    folders = dict.fromkeys(each["folder"].parent for each in exercises)
    return [track for folder in folders if (folder / "tracks.json").exists() for track in json.loads((folder / "tracks.json").read_text())]


def number_of(exercise):
    return exercise["id"].split("-")[0]


def exercise_rows(exercises, lang):
    """A line for each exercise, with a link to its handout where there is one."""
    tracks = tracks_of(exercises)
    for each in exercises:
        letters = [track["letter"] for track in tracks if number_of(each) in track.get("exercises", [])]
        title, target = f"{number_of(each)} {cut.said(each['title'], lang)}", f"{each['id']}/handout.{lang}.md"
        title = f"[{title}]({target})" if (each["folder"] / f"handout.{lang}.md").exists() else title
        yield f"| {title} | {each['hours']} | {each['points']} | {' '.join(letters)} |\n"


def track_rows(exercises, lang):
    for track in tracks_of(exercises):
        taken = [each for each in exercises if number_of(each) in track.get("exercises", [number_of(each)])]
        if not taken:
            continue  # of a course with other exercises
        yield (f"| {cut.said(track['title'], lang)} | {', '.join(map(number_of, taken))} | {sum(each['hours'] for each in taken):g} | "
               f"{sum(each['points'] for each in taken)} |\n")


def with_tables(page, exercises, lang):
    """The page with the rows of these exercises: those below the head and the rule of each table."""
    for heading, rows in (("track|路线", track_rows), ("exercise|练习", exercise_rows)):
        page = re.sub(rf"^(\| (?:{heading}) \|.*\n\|---.*\n)(?:\|.*\n)*",
                      lambda match: match[1] + "".join(rows(exercises, lang)), page, count=1, flags=re.M)
    return page


def page_of(lang, name="README"):
    return ROOT / "exercises" / (f"{name}.md" if lang == "en" else f"{name}.{lang}.md")


def faults_of_rubric(exercises):
    """An answer for each question of each exercise, in order."""
    sections = re.split(r"^## (\d\d)\n", RUBRIC.read_text(), flags=re.M)[1:]
    answers = {number: re.findall(r"^(\d)\. ", text, flags=re.M) for number, text in zip(sections[::2], sections[1::2])}
    for each in exercises:
        handout = Handout((each["folder"] / f"handout.{next(iter(each['title']))}.md").read_text())
        asked = re.findall(r"^(\d)\. ", handout.prose["Two questions"], flags=re.M)
        if answers.get(number_of(each), []) != asked:
            yield f"rubric.md: section {number_of(each)} answers {answers.get(number_of(each), [])}, the handout asks {asked}"


def main():
    exercises = cut.load_all(ROOT)
    if "--table" in sys.argv:
        for lang in LANGUAGES:
            page_of(lang).write_text(with_tables(page_of(lang).read_text(), exercises, lang))
        return 0
    found, without = 0, []
    for exercise in (each for each in exercises if not sys.argv[1:] or each["id"].split("-")[0] in sys.argv[1:]):
        if not any((exercise["folder"] / f"handout.{lang}.md").exists() for lang in LANGUAGES):
            without.append(exercise["id"])
            continue
        for fault in faults(exercise):
            found += 1
            print(f"{exercise['id']}: {fault}")
    for fault in faults_of_rubric(exercises):
        found += 1
        print(fault)
    for lang in LANGUAGES if not sys.argv[1:] else []:
        if page_of(lang).read_text() != with_tables(page_of(lang).read_text(), exercises, lang):
            found += 1
            print(f"{page_of(lang).name}: its table is not that of exercise.json: exercises/tool/handouts.py --table")
    print(f"handouts: {found or 'no'} faults" + (f"; none yet for {', '.join(without)}" if without else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
