#!/usr/bin/env python3
"""Checks the handouts, exercises/NN-slug/handout.en.md and handout.zh.md, and the table of exercises in
exercises/README.md and README.zh.md.

    handouts.py [NN ...]     prints each fault and exits 1 if there are any
    handouts.py --table      writes the tables again, from exercise.json

Both languages have the same headings, numbers, code blocks and names in backticks, section by section. Points,
hours, cases and the output of a check agree with exercise.json. Links and the figure exist beside the handout,
because it is exported with them. Terms of docs/glossary.md have their Chinese names.
"""
import re
import sys
from collections import Counter
from pathlib import Path

import cut

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ["en", "zh"]
HEADINGS = {"en": ["Why", "What you write", "What right means", "A check", "In the debugger", "Measure it", "Two questions", "Time and CS336"],
            "zh": ["为什么", "你要写什么", "怎样算对", "一次检查", "在调试器里", "测一测", "两个问题", "用时与 CS336"]}
WRITE, CASES, CHECK, MAPS = 1, 2, 3, 7  # places in HEADINGS
LONGEST = 110  # lines: two pages
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
    def __init__(self, text):
        self.lines = text.split("\n")
        self.headings = [line[3:] for line in self.lines if line.startswith("## ")]
        bodies = re.split(r"^## .*\n", text, flags=re.M)
        self.code = [re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", body, flags=re.M) for body in bodies]
        self.prose = [re.sub(r"^    .*\n", "", body, flags=re.M) for body in bodies]
        self.names = [Counter(re.findall(r"`([^`]+)`", prose)) for prose in self.prose]
        self.numbers = [Counter(re.findall(r"\d+(?:\.\d+)?", prose)) for prose in self.prose]

    def section(self, place):
        """Prose and code under HEADINGS[place]."""
        return self.prose[1 + place] + "".join(self.code[1 + place])


def faults_of(folder, exercise, lang):
    file = folder / f"handout.{lang}.md"
    handout, text = Handout(file.read_text()), file.read_text()
    title, facts = head(exercise, lang)
    if handout.lines[0] != title or handout.lines[2:3] != [facts]:
        yield f"it must begin with \"{title}\", an empty line, and \"{facts}\""
    if handout.headings != HEADINGS[lang]:
        yield f"its headings are {handout.headings}, expected {HEADINGS[lang]}"
        return
    if len(handout.lines) > LONGEST:
        yield f"it has {len(handout.lines)} lines; two pages are at most {LONGEST}"
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (folder / target).is_file():
            yield f"it links to {target}, which is not beside it (it is exported without the rest of the tree)"
    if (folder / "figure.json").exists() and not re.search(r"!\[[^\]]+\]\(figure\.svg\)", text):
        yield "it does not show figure.svg, with a description in ![...]"
    for each in exercise["cut"]:
        for name in (Path(each["file"]).name, each["function"].split("(")[0].split("::")[-1]):
            if name not in handout.section(WRITE):
                yield f"\"{HEADINGS[lang][WRITE]}\" does not name {name}, which the student writes"
    shown = re.findall(r"^\| `([\w-]+)` \| (\d+) \| ([\d, ]*) \| ([\d, ]*?) ?\|", handout.prose[1 + CASES], flags=re.M)
    worlds = lambda numbers: ", ".join(map(str, numbers))
    expected = [(case["id"], str(case["points"]), worlds(case["worlds"]), worlds(case.get("hidden", []))) for case in exercise["cases"]]
    if shown != expected:
        yield f"its table of cases has {shown}, exercise.json has {expected}"
    yield from faults_of_output("".join(handout.code[1 + CHECK]), exercise)
    for name in (each.split(": ")[-1] for each in exercise["cs336"]):
        if name not in handout.section(MAPS):
            yield f"\"{HEADINGS[lang][MAPS]}\" does not name {name}"


def faults_of_output(output, exercise):
    """Whether ./exercise check could have printed this."""
    titles = {case["id"]: (str(case["points"]), case["title"]) for case in exercise["cases"]}
    for id, points, title in re.findall(r"^ +[✓✗·] ([\w-]+) +\d+/(\d+)  (.*)$", output, flags=re.M):
        if titles.get(id) != (points, title):
            yield f"its output shows case {id} with {points} points, \"{title}\"; exercise.json has {titles.get(id)}"
    points = exercise["points"]
    if f"{exercise['id']}  {exercise['title']['en']}: right, {points} of {points} points" not in output:
        yield f"it shows no output of a right answer with {points} points"
    if not any(wrong["says"] in output for wrong in exercise["wrong"]):
        yield "it shows no sentence about a wrong answer of exercise.json"


def differences(english, chinese):
    """Between two handouts whose headings are as they must be."""
    for place, (heading, here, there) in enumerate(zip(["the head"] + english.headings, english.code, chinese.code)):
        if here != there:
            yield f"\"{heading}\": the code blocks differ between the languages"
        for what, left, right in (("number", english.numbers[place], chinese.numbers[place]), ("name", english.names[place], chinese.names[place])):
            for each, sign in [(each, "only in English") for each in left - right] + [(each, "only in Chinese") for each in right - left]:
                yield f"\"{heading}\": the {what} {each} is {sign}, or more often there"
        for term, name in lacking_terms(english.prose[place], chinese.prose[place]):
            yield f"\"{heading}\" speaks of a {term}, but the Chinese text lacks {name} (docs/glossary.md)"


def lacking_terms(english, chinese, everyday=EVERYDAY):
    """(term, Chinese name) of the terms of the glossary in `english` whose Chinese name `chinese` lacks."""
    rows = re.findall(r"^\| ([\w -]+?) \|.*\| ([^|]+?) \|$", (ROOT / "docs/glossary.md").read_text(), flags=re.M)
    english = re.sub(r"`[^`]*`", "", english)
    for term, name in rows:
        if term not in everyday and re.search(rf"\b{term}s?\b(?!\()", english, flags=re.I) and name not in chinese:
            yield term, name


def faults_of_figure(folder):
    if not (folder / "figure.svg").exists():
        yield "figure.json is not drawn yet: exercises/tool/figures.py build/release/bin/ringside"
    elif re.search(r"<text[^>]*>[^<]*[^\W\d_]", (folder / "figure.svg").read_text()):
        yield "figure.svg has words: both languages share it"


def faults(exercise):
    folder = ROOT / "exercises" / exercise["id"]
    files = {lang: folder / f"handout.{lang}.md" for lang in LANGUAGES}
    for lang, file in files.items():
        if not file.exists():
            yield f"handout.{lang}.md is missing"
        else:
            yield from (f"handout.{lang}.md: {fault}" for fault in faults_of(folder, exercise, lang))
    if (folder / "figure.json").exists():
        yield from faults_of_figure(folder)
    if all(file.exists() for file in files.values()):
        english, chinese = (Handout(files[lang].read_text()) for lang in LANGUAGES)
        if len(english.headings) == len(chinese.headings) == len(HEADINGS["en"]):
            yield from differences(english, chinese)


# ---- The tables of README.md

TRACKS = [({"en": "week-end (W)", "zh": "周末（W）"}, ["01", "02", "13", "15", "19"]),
          ({"en": "CS336 companion (C)", "zh": "CS336 伴读（C）"}, ["06", *map(str, range(11, 23)), "27"]),
          ({"en": "full", "zh": "完整"}, None)]  # all


def number_of(exercise):
    return exercise["id"].split("-")[0]


def exercise_rows(exercises, lang):
    """A line for each exercise, with a link to its handout where there is one."""
    for each in exercises:
        letters = [names["en"][-2] for names, numbers in TRACKS if numbers and number_of(each) in numbers]
        title, target = f"{number_of(each)} {each['title'][lang]}", f"{each['id']}/handout.{lang}.md"
        title = f"[{title}]({target})" if (ROOT / "exercises" / target).exists() else title
        yield f"| {title} | {each['hours']} | {each['points']} | {' '.join(letters)} |\n"


def track_rows(exercises, lang):
    for names, numbers in TRACKS:
        taken = [each for each in exercises if numbers is None or number_of(each) in numbers]
        yield (f"| {names[lang]} | {', '.join(map(number_of, taken))} | {sum(each['hours'] for each in taken):g} | "
               f"{sum(each['points'] for each in taken)} |\n")


def with_tables(page, exercises, lang):
    """The page with the rows of these exercises: those below the head and the rule of each table."""
    for heading, rows in (("track|路线", track_rows), ("exercise|练习", exercise_rows)):
        page = re.sub(rf"^(\| (?:{heading}) \|.*\n\|---.*\n)(?:\|.*\n)*",
                      lambda match: match[1] + "".join(rows(exercises, lang)), page, count=1, flags=re.M)
    return page


def page_of(lang):
    return ROOT / "exercises" / ("README.md" if lang == "en" else f"README.{lang}.md")


def main():
    exercises = cut.load_all(ROOT)
    if "--table" in sys.argv:
        for lang in LANGUAGES:
            page_of(lang).write_text(with_tables(page_of(lang).read_text(), exercises, lang))
        return 0
    found, without = 0, []
    for exercise in (each for each in exercises if not sys.argv[1:] or each["id"].split("-")[0] in sys.argv[1:]):
        if not any((ROOT / "exercises" / exercise["id"] / f"handout.{lang}.md").exists() for lang in LANGUAGES):
            without.append(exercise["id"])
            continue
        for fault in faults(exercise):
            found += 1
            print(f"{exercise['id']}: {fault}")
    for lang in LANGUAGES if not sys.argv[1:] else []:
        if page_of(lang).read_text() != with_tables(page_of(lang).read_text(), exercises, lang):
            found += 1
            print(f"{page_of(lang).name}: its table is not that of exercise.json: exercises/tool/handouts.py --table")
    print(f"handouts: {found or 'no'} faults" + (f"; none yet for {', '.join(without)}" if without else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
