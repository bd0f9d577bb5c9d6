"""What students hand in, in the forms that classrooms make.

    submissions/NAME/01-ring-reduce-scatter/...      a folder, a repository
    submissions/NAME.tar.gz                          the archive of `./exercise submit`; also .tgz, .tar, .zip
    submissions/NAME/submission.tar.gz               an archive in the student's folder
    submissions/NAME/course/01-ring-.../...          one level deeper, in a folder or an archive
"""
import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
LARGEST = 1_000_000  # bytes of a file: programs.md says so
MOST, ENTRIES = 500_000_000, 20_000  # bytes of a submission, unpacked, and entries of an archive
PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}  # how a tar that begins so is read


class Unreadable(ValueError):
    """A form that is not one of these: the sentence says what was found."""


def ending_of(path):
    return next((each for each in ARCHIVES if path.name.lower().endswith(each)), "")


def submissions_in(folder):
    """{student: a folder or an archive}, and {name: a sentence that begins with it} for what is neither."""
    found, refused = {}, {}
    for path in sorted(Path(folder).iterdir()):
        if path.name.startswith((".", "__MACOSX")):
            continue
        ending = ending_of(path) if path.is_file() else ""
        student = path.name[:len(path.name) - len(ending)]
        if (shown := os.fsencode(path.name).decode(errors="backslashreplace")) != path.name:
            refused[path.name] = f"{shown} is no name in UTF-8: rename it"
        elif not path.is_dir() and not ending:
            refused[path.name] = f"{path.name} is neither a folder nor an archive ({', '.join(ARCHIVES)})"
        elif student in found:
            refused[path.name] = f"{path.name} and {found[student].name} are both of {student}: keep one"
        else:
            found[student] = path
    return found, refused


def too_large(name, size):
    return f"{name} has {size / 1e6:.1f} MB: only files of less than {LARGEST / 1e6:.0f} MB are read"


def refuse_too_much(size):
    if size > MOST:
        raise Unreadable(f"it has more than {MOST / 1e6:.0f} MB: only the folders of the exercises are needed")


def unpack(archive, folder, exercises):
    """Only plain files, and none outside of the folder. Returns sentences about files of these exercises that are too large."""
    folder, too_large_ones, total = Path(folder).resolve(), [], 0

    def write(name, size, read):
        nonlocal total
        target = (folder / name).resolve()
        if folder not in target.parents or any(part.startswith((".", "__MACOSX")) for part in Path(name).parts):
            return
        if size >= LARGEST:
            too_large_ones.extend([too_large(name, size)] if target.parent.name in exercises else [])
            return
        refuse_too_much(total := total + size)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read())

    def refuse_too_many(count):
        if count > ENTRIES:
            raise Unreadable(f"it has more than {ENTRIES} entries: only the folders of the exercises are needed")

    try:
        refuse_too_much(archive.stat().st_size)
        if ending_of(archive) == ".zip":
            with zipfile.ZipFile(archive) as file:
                refuse_too_many(len(file.infolist()))
                for entry in file.infolist():
                    name = entry.filename.replace("\\", "/")  # PowerShell 5.1 writes folders so
                    if name.endswith("/") or entry.external_attr >> 28 not in (0, 8):  # folders and links
                        continue
                    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # zipfile cannot read a part of others
                        raise Unreadable(f"{name} is compressed by method {entry.compress_type}: only deflate is read, which every program that writes zip has")
                    write(name, entry.file_size, lambda entry=entry: file.open(entry).read(LARGEST))  # at most: the size is what its maker says
        else:
            with open(archive, "rb") as file:
                begin = file.read(6)
            unpacker = next((each for magic, each in PACKED.items() if begin.startswith(magic)), open)
            with unpacker(archive, "rb") as stream, tempfile.TemporaryFile() as content:
                while some := stream.read(1 << 20):
                    content.write(some)
                    refuse_too_much(content.tell())
                content.seek(0)
                with tarfile.open(fileobj=content, mode="r:") as file:
                    for count, entry in enumerate(file, 1):
                        refuse_too_many(count)
                        if entry.isfile():
                            write(entry.name, entry.size, lambda entry=entry: file.extractfile(entry).read())
    except Unreadable:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise Unreadable(f"{archive.name} cannot be unpacked: {error or type(error).__name__}") from None
    return too_large_ones


def visible(folder, wanted):
    return sorted(each for each in folder.iterdir() if not each.name.startswith((".", "__MACOSX")) and wanted(each))


def code_in(path, scratch, exercises):
    """(folder, sentences): a copy in `scratch` of the folders of these exercises in `path`, a folder or an archive, by their ids; and what
    was left out of it. Throws Unreadable."""
    top, left_out = path, []
    if not path.is_dir():
        top = Path(scratch, "unpacked")
        top.mkdir()
        left_out += unpack(path, top, exercises)

    def stays(each):
        """Whether it lies in the submission. What a link leads to elsewhere may be another student's answer."""
        if top.resolve() in (each.resolve(), *each.resolve().parents):
            return True
        left_out.append(f"{each.relative_to(top)} is a link that leads out of the submission, so it is not followed: hand in what it leads to")
        return False

    places = [top]
    for _ in range(2):  # here, or one level deeper
        folders = {each: [each / id for id in exercises if (each / id).is_dir() and stays(each / id)] for each in places}
        with_code = [each for each in places if folders[each]]
        if len(with_code) > 1:
            raise Unreadable(f"there are exercises in {' and in '.join(each.name for each in with_code)}: keep one of them")
        if with_code:
            return copied(folders[with_code[0]], Path(scratch, "code"), stays, left_out), left_out
        archives = [each for place in places for each in visible(place, lambda file: file.is_file() and ending_of(file) and stays(file))]
        if path.is_dir() and len(archives) == 1:
            return code_in(archives[0], scratch, exercises)
        if len(archives) > 1:
            raise Unreadable(f"there are several archives, {' and '.join(each.name for each in archives)}: keep one of them")
        places = [each for place in places for each in visible(place, lambda each: each.is_dir() and each.name not in exercises and stays(each))]
    names = [each.name for each in visible(top, lambda _: True)]
    raise Unreadable(f"expected folders of exercises, such as {exercises[0]}, here or one level deeper; found "
                     f"{', '.join(names[:5]) + ', ...' * (len(names) > 5) if names else 'nothing'}" + "".join(f"; {each}" for each in left_out))


def copied(folders, target, stays, left_out):
    """The plain files of these folders in `target`, and what is too large named in `left_out`."""
    total = 0
    for folder in folders:
        (target / folder.name).mkdir(parents=True)
        for file in sorted(each for each in folder.iterdir() if each.is_file() and stays(each)):
            size = file.stat().st_size
            if size >= LARGEST:
                left_out.append(too_large(f"{folder.name}/{file.name}", size))
                continue
            refuse_too_much(total := total + size)
            shutil.copyfile(file, target / folder.name / file.name)
    return target
