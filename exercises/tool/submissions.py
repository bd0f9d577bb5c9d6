"""What students hand in, in the forms that classrooms make.

    submissions/NAME/01-ring-reduce-scatter/...      a folder, a repository
    submissions/NAME.tar.gz                          the archive of `./exercise submit`; also .tgz, .tar, .zip
    submissions/NAME/submission.tar.gz               an archive in the student's folder
    submissions/NAME/course/01-ring-.../...          one level deeper, in a folder or an archive
"""
import tarfile
import zipfile
from pathlib import Path

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
LARGEST = 1_000_000  # bytes of a file


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
        if not path.is_dir() and not ending:
            refused[path.name] = f"{path.name} is neither a folder nor an archive ({', '.join(ARCHIVES)})"
        elif student in found:
            refused[path.name] = f"{path.name} and {found[student].name} are both of {student}: keep one"
        else:
            found[student] = path
    return found, refused


def unpack(archive, folder):
    """Only plain files, and none outside of the folder."""
    def write(name, size, read):
        target = (Path(folder) / name).resolve()
        if size < LARGEST and Path(folder).resolve() in target.parents:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read())

    try:
        if ending_of(archive) == ".zip":
            with zipfile.ZipFile(archive) as file:
                for entry in file.infolist():
                    if not entry.is_dir() and entry.external_attr >> 28 in (0, 8):  # no links
                        write(entry.filename, entry.file_size, lambda entry=entry: file.read(entry))
        else:
            with tarfile.open(archive) as file:
                for entry in file:
                    if entry.isfile():
                        write(entry.name, entry.size, lambda entry=entry: file.extractfile(entry).read())
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise Unreadable(f"{archive.name} cannot be unpacked: {error or type(error).__name__}") from None


def visible(folder, wanted):
    return sorted(each for each in folder.iterdir() if not each.name.startswith((".", "__MACOSX")) and wanted(each))


def code_in(path, scratch, exercises):
    """The folder in `path`, a folder or an archive, that holds folders of these exercises, by their ids. Archives are unpacked
    in `scratch`. Throws Unreadable."""
    if not path.is_dir():
        unpack(path, scratch)
    places = [path if path.is_dir() else Path(scratch)]
    for _ in range(2):  # here, or one level deeper
        if with_code := [each for each in places if any((each / id).is_dir() for id in exercises)]:
            if len(with_code) > 1:
                raise Unreadable(f"there are exercises in {' and in '.join(each.name for each in with_code)}: keep one of them")
            return with_code[0]
        archives = [each for place in places for each in visible(place, lambda file: file.is_file() and ending_of(file))]
        if path.is_dir() and len(archives) == 1 and not any(Path(scratch).iterdir()):
            return code_in(archives[0], scratch, exercises)
        if len(archives) > 1:
            raise Unreadable(f"there are several archives, {' and '.join(each.name for each in archives)}: keep one of them")
        places = [each for place in places for each in visible(place, Path.is_dir)]
    top = path if path.is_dir() else Path(scratch)
    names = [each.name for each in visible(top, lambda _: True)]
    raise Unreadable(f"expected folders of exercises, such as {exercises[0]}, here or one level deeper; found "
                     f"{', '.join(names[:5]) + ', ...' * (len(names) > 5) if names else 'nothing'}")
