"""Cuts an exercise out of the reference, which itself has no markers.

exercise.json names files, and functions in them by text. A name must match exactly one definition;
text to strip or to edit must occur exactly once. Otherwise CutError says what was found: a change of
the reference cannot spoil an exercise in silence.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


class CutError(Exception):
    pass


def load(folder):
    """The metadata of one exercise: exercise.json, the wrong answers in files beside it, and its folder."""
    folder = Path(folder).resolve()
    try:
        exercise = json.loads((folder / "exercise.json").read_text())
    except ValueError as error:
        raise CutError(f"{folder}/exercise.json: {error}") from None
    if exercise.get("schema") != "ringside/exercise/v1" or exercise["id"] != folder.name:
        raise CutError(f"{folder}/exercise.json: expected schema ringside/exercise/v1 and id {folder.name}")
    if exercise["points"] != sum(case["points"] for case in exercise["cases"]):
        raise CutError(f"{exercise['id']}: the points of the cases do not add up to {exercise['points']}")
    wrong = exercise.get("wrong", []) + [wrong_of(path) for path in answers_in(folder / "wrong")]
    for path in answers_in(folder / "python/wrong"):  # of an answer that exists in C++, which says where it fails
        answer = next((each for each in wrong if each["id"] == path.stem), None)
        if answer is None:
            raise CutError(f"{path}: expected a wrong answer of the same name in C++, {folder}/wrong/{path.stem}.hpp")
        answer["python"] = {"path": path, **said_in(path)}
    return {**exercise, "folder": folder, "wrong": wrong}


def answers_in(folder):
    """Answers in files: patches of the reference, and files of C++ or Python that take its place."""
    return sorted(path for path in Path(folder).glob("*") if path.suffix in (".patch", ".hpp", ".cpp", ".py"))


def wrong_of(path):
    """A wrong answer in a file. It begins with two lines, in C++ as comments: "fails: CASE" and "says: SENTENCE"."""
    found = said_in(path)
    if len(found) < 2:
        raise CutError(f"{path}: expected \"fails: CASE\" and \"says: SENTENCE\" in its first lines, found {sorted(found) or 'neither'}")
    return {"id": path.stem, "path": path, **found}


def said_in(path):
    """{"fails", "says"}, of what the file says."""
    return dict(re.findall(r"^(?:(?://|#) )?(fails|says): (.*?) *$", path.read_text(), flags=re.M))


def load_all(root):
    return [load(path.parent) for path in sorted(Path(root).glob("exercises/[0-9]*/exercise.json"))]


def masked(text):
    """The text with comments, strings and character literals blanked, of the same length."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def closing(code, at):
    """The position of the bracket that closes the one at `at`. `code` is masked."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0:
            return i
    raise CutError(f"nothing closes the bracket in {code[at:at + 40]!r}")


def body_after(code, at):
    """The `{` of the body that follows a parameter list which ends before `at`; None if none does."""
    head = re.compile(r"\s*((const|noexcept|override|final)\b\s*|->\s*[\w:<>&*\s]+?(?=\{))*").match(code, at)
    at = head.end()
    if code[at:at + 1] == ":" and code[at:at + 2] != "::":  # the initialisers of a constructor
        while at < len(code) and code[at] != ";":
            if code[at] == "{" and not re.search(r"[\w>]\s*$", code[:at]):
                return at
            at = closing(code, at) + 1 if code[at] in "({[" else at + 1
        return None
    return at if code[at:at + 1] == "{" else None


def find_function(text, function, file):
    """(start of its comment, `{`, `}`) of the only definition that begins with the text `function`."""
    code = masked(text)
    name = function if "(" in function else function + "("
    pattern = r"(?<![\w:.>~])" + r"\s*".join(re.escape(word) for word in re.findall(r"\w+|[^\w\s]", name))
    found = []
    for match in re.finditer(pattern, code):
        opening = code.index("(", match.start())
        body = body_after(code, closing(code, opening) + 1)
        if body is not None:
            found.append((match.start(), body, closing(code, body)))
    if len(found) != 1:
        raise CutError(f"{file}: expected one definition of {function}, found {len(found)}")
    lines_before = text[:text.rfind("\n", 0, found[0][0]) + 1].split("\n")[:-1]
    begin = len(lines_before)
    while begin and re.search(r"^\s*//|^[^\s#}/][^;{}]*$|^template", lines_before[begin - 1]):
        begin -= 1
    return sum(len(line) + 1 for line in lines_before[:begin]), found[0][1], found[0][2]


def position(text, piece, what):
    if text.count(piece) != 1:
        raise CutError(f"{what}: expected {piece!r} once, found it {text.count(piece)} times")
    return text.index(piece)


def replace_once(text, find, replacement, what):
    at = position(text, find, what)
    return text[:at] + replacement + text[at + len(find):]


def said(texts, lang):
    """A text of exercise.json in this language, or in another one that it has."""
    return texts.get(lang) or next(iter(texts.values()))


def source(root, exercise, file):
    """Where a file of an exercise is: beside exercise.json, or else in Ringside."""
    beside = Path(exercise["folder"], file)
    return beside if beside.exists() else Path(root, file)


def text_of(root, exercise, file):
    """The text of a file of an exercise, with the sections of programs that stand in it."""
    text = source(root, exercise, file).read_text()
    for section in exercise.get("sections", []):
        if section["into"] == file:
            what = f"{exercise['id']}, sections"
            program = Path(root, section["file"]).read_text()
            part = program[position(program, section["from"], what):position(program, section["to"], what)]
            text = replace_once(text, section["before"], part + section["before"], what)
    return text


def files_of(exercise):
    """Every source of the exercise, in order: those that are cut, then those that are kept whole."""
    return list(dict.fromkeys([cut["file"] for cut in exercise["cut"]] + exercise.get("keep", [])))


def edits_of(wrong):
    return wrong.get("edits") or [{key: wrong[key] for key in ("file", "find", "replace") if key in wrong}]


def student_files(root, exercise, stub=True, edits=()):
    """{file name: text} of a student's folder. stub: without the bodies; else the reference, edited."""
    sources = files_of(exercise)
    result = {}
    for file in sources:
        text = text_of(root, exercise, file)
        for drop in exercise.get("drop", []):
            if drop["file"] == file:
                begin, _, end = find_function(text, drop["function"], file)
                text = text[:begin] + text[end + 1:].lstrip("\n")
        for edit in edits:
            if edit.get("file", sources[0]) == file:
                text = replace_once(text, edit["find"], edit["replace"], f"{exercise['id']}, edit of {file}")
        if stub:
            text = stubbed(text, exercise, file)
        result[Path(file).name] = in_student_namespace(text, sources, exercise.get("include", []))
    return result


def variants_of(exercise):
    """Right answers in another form than the reference."""
    return answers_in(exercise["folder"] / "variants")


def answer_files(root, exercise, path):
    """{file name: text} of a student's folder: of an answer in a file beside the exercise. A patch changes the reference; C++
    takes the place of the only file with that ending."""
    with tempfile.TemporaryDirectory(prefix="ringside-answer-") as folder:
        for file in files_of(exercise):
            target = Path(folder, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text_of(root, exercise, file))
        if path.suffix == ".patch":
            done = subprocess.run(["git", "apply", "-p1", str(path)], cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                raise CutError(f"{exercise['id']}, {path.parent.name}/{path.name}: {done.stderr.strip()}")
        else:
            replaced = [file for file in files_of(exercise) if Path(file).suffix == path.suffix]
            if len(replaced) != 1:
                raise CutError(f"{exercise['id']}, {path.parent.name}/{path.name}: {len(replaced)} files of the exercise end with "
                               f"{path.suffix}, so it is not clear which one it replaces: write a patch")
            Path(folder, replaced[0]).write_text(path.read_text())
        return student_files(folder, {**exercise, "folder": Path(folder), "sections": []}, stub=False)


def wrong_files(root, exercise, wrong):
    """{file name: text} of a student's folder: of a wrong answer."""
    if "path" in wrong:
        return answer_files(root, exercise, wrong["path"])
    return student_files(root, exercise, stub=False, edits=edits_of(wrong))


def stubbed(text, exercise, file):
    for strip in exercise.get("strip_comments", []):
        if strip["file"] == file:
            begin = position(text, strip["from"], f"{exercise['id']}, strip_comments")
            end = position(text, strip["to"], f"{exercise['id']}, strip_comments")
            text = text[:begin] + strip.get("with", "") + text[end:]
    for cut in exercise["cut"]:
        if cut["file"] == file:
            _, begin, end = find_function(text, cut["function"], file)
            margin = re.match(r" *", text[text.rfind("\n", 0, end) + 1:])[0] if text[begin:end].count("\n") else ""
            name = cut["function"].split("(")[0]
            text = f'{text[:begin]}{{\n{margin}  not_written_yet("{name}");\n{margin}}}{text[end + 1:]}'
    return text


def in_student_namespace(text, sources, given):
    """Into namespace student; includes of the exercise's own files name the copies beside it."""
    text = text.replace("namespace ringside::", "namespace student::")
    for source in sources:
        text = text.replace(f'#include "{source}"', f'#include "{Path(source).name}"')
    last = list(re.finditer(r"^#include .*\n|^#pragma once\n", text, flags=re.M))[-1].end()
    added = "".join(f'#include "{header}"\n' for header in given + ["exercises/judge/starter.hpp"] if f'"{header}"' not in text)
    return text[:last] + added + text[last:]


def write(files, folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (Path(folder) / name).write_text(text)


if __name__ == "__main__":
    root, *chosen = map(Path, sys.argv[1:])
    if chosen:  # cut.py ROOT EXERCISE FOLDER: the reference in namespace student
        name, folder = chosen
        write(student_files(root, load(root / "exercises" / name), stub=False), folder)
        (folder / "stamp").touch()
    else:  # cut.py ROOT: the sources of every exercise, for CMake
        for exercise in load_all(root):
            files = " ".join(f'"{source(root, exercise, file)}"' for file in files_of(exercise))
            print(f"set(files_of_{exercise['id']} {files})")
            programs = " ".join(f'"{Path(root, section["file"])}"' for section in exercise.get("sections", []))
            print(f"set(programs_of_{exercise['id']} {programs})")
