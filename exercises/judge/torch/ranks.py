"""The warm parent of ranks with torch: imports it once, and makes each rank by fork().

    ranks.py SOCKET      to the judge, which asks, and gets a line of JSON:

    {"check": file}      what a student's file has that it may not have: {"status", "says"}, or {}; with {"ledger": true}
                         also what would get around the ledger (ledger.py), with {"answers": [...]} what in torch is the
                         answer of this exercise alone
    {"import": "torch"}  {} when torch is there, or "torch._dynamo", which the ledger and optimizers import
    {"fork": {...}}      with two descriptors, the rank's socket to the witness and its output: {"pid"}
    {"look": pid}        {"status"} of waitpid, null while it runs; it can be asked for again
    {"reap": pid}        the same, once it has ended
"""
import ast
import ctypes
import gc
import importlib.util
import json
import os
import re
import socket
import sys
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["RINGSIDE_PYTHON"])


def import_torch():
    """Takes seconds, which a file that is not written yet does not need."""
    global torch, dist, no_gpu, remote
    import torch
    import torch.distributed as dist
    import torch.nn.parallel

    import ledger  # noqa: F401  its functions of torch are those that no student has touched
    import no_gpu
    import remote

    gc.freeze()  # ranks neither search nor copy what torch has brought


# What a file may import. These have the rest of Python in their attributes, so some names are refused everywhere.
ALLOWED = {"torch", "collections", "contextlib", "dataclasses", "functools", "itertools", "math", "threading", "typing", "weakref", "__future__"}
REFUSED = set("""sys _sys os _os io posix pathlib shutil tempfile mmap ctypes importlib subprocess inspect gc builtins multiprocessing asyncio socket pickle
    eval exec compile open globals vars locals breakpoint
    library witness ringside _C _dynamo _inductor _python_dispatch _mode_utils cpp_extension hub load package load_library jit fx serialization save from_file gi_frame tb_frame f_back""".split())
# Where memory is judged: other threads, and numbers that are kept outside of tensors.
AROUND_THE_LEDGER = {"threading", "numpy", "tolist", "__array__", "UntypedStorage", "TypedStorage", "saved_tensors_hooks"}
# The answer, or what builds on it.
REFERENCE = re.compile(r"DistributedDataParallel|DistributedOptimizer|fsdp|fully_shard|FullyShardedDataParallel|ZeroRedundancyOptimizer|PostLocalSGDOptimizer"
                       r"|distributed\.(?:algorithms|optim|tensor|nn\b|pipelining)|^algorithms$|_composable|ddp_comm_hooks|^Join|nn\.parallel|^Reducer$|_sync_module_states|_sync_params")
ANSWERS = set()  # in a rank: as attributes, and as what is imported
OWN = {"__init__", "__call__", "__enter__", "__exit__", "__name__", "__class__", "__len__", "__iter__", "__getitem__", "__all__", "__version__", "__post_init__"}


def fault_of(path, has_ledger=False, answers=()):
    """What the file may not have: {"status", "says"}; {} if it is fine."""
    name = path.name
    says = lambda status, line, text: {"status": status, "says": f"{name}:{line}: {text}"}
    try:
        tree = ast.parse(path.read_text())
    except SyntaxError as error:
        return says("does not compile", error.lineno or 1, f"error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return says("does not compile", 1, f"error: {error}")
    modules = set()
    for node in ast.walk(tree):
        line, imported = getattr(node, "lineno", 1), []
        if isinstance(node, ast.Import):
            imported = [each.name for each in node.names]
            modules |= {each.asname or each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported = [f"{node.module}.{each.name}" for each in node.names]
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else " "
        words = [*imported, getattr(node, "id", None), getattr(node, "attr", None), None if " " in text else text]
        for word in filter(None, words if has_ledger else []):
            if around := set(word.split(".")) & AROUND_THE_LEDGER:
                return says("forbidden", line, f"uses {around.pop()}: memory is measured on the thread that calls your code, in tensors, and by the judge alone")
        for each in imported:
            if each.split(".")[0] not in ALLOWED:
                return says("forbidden", line, f"imports {each}, which is not on the list: {', '.join(sorted(ALLOWED - {'__future__'}))}")
        for word in filter(None, [*imported, getattr(node, "attr", None)]):
            if found := set(word.split(".")) & set(answers):
                return says("forbidden", line, f"uses {found.pop()}, which is the answer (or builds on it): write it yourself")
        for word in filter(None, words):
            if found := REFERENCE.search(word):
                return says("forbidden", line, f"uses {found[0]}, which is the answer (or builds on it): write it yourself")
            if word in REFUSED or set(word.split(".")) & REFUSED or re.fullmatch(r"__\w+__", word) and word not in OWN:
                return says("forbidden", line, f"uses {word}: a rank has only its group to talk to others")
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)) else []:
            root = target
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if root is not target and isinstance(root, ast.Name) and root.id in modules | {"dist", "nn"}:
                return says("forbidden", line, f"changes {ast.unparse(target)}: what is torch's stays as it is")
        if isinstance(node, ast.Raise) and "is not yet written" in ast.unparse(node):
            return {"status": "not written", "says": f"{name}:{line}"}
    return {}


def guarded(name):
    """getattr and its kin, without names that lead out of torch."""
    function = getattr(__import__("builtins"), name)

    def checked(target, attribute, *more):
        of_torch = isinstance(target, type(torch)) or isinstance(target, type) and target.__module__.startswith("torch")
        if attribute in REFUSED | ANSWERS or attribute.startswith("__") or REFERENCE.search(attribute) or name != "getattr" and of_torch:
            raise PermissionError(f"{name}(..., {attribute!r}): a rank has only its group to talk to others")
        return function(target, attribute, *more)

    return checked


def import_allowed(name, *more, **options):
    """Also of a text that Python evaluates for its own ends, such as an annotation."""
    if name.split(".")[0] not in ALLOWED:
        raise PermissionError(f"imports {name}: a rank has only its group to talk to others")
    return __import__(name, *more, **options)


def load(path, name="answer"):
    """The student's file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    given = dict(vars(__import__("builtins")))
    for each in ("eval", "exec", "compile", "open", "input", "breakpoint", "globals", "locals", "vars"):
        del given[each]
    module.__builtins__ = {**given, **{each: guarded(each) for each in ("getattr", "setattr", "delattr")}, "__import__": import_allowed}
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


class Adapted:
    """The class that an adapter of CS336's tests/adapters.py returns, in the form of these exercises."""

    def __init__(self, given):
        no_gpu.stand_in()
        sys.path[:0] = given["paths"]
        self.adapters, self.given = importlib.import_module("tests.adapters"), given

    def DDP(self, module, *arguments):
        given, function = self.given, lambda step: getattr(self.adapters, self.given[step])
        for buffer in module.buffers():  # of which the assignment does not speak: it asks for equal parameters
            dist.broadcast(buffer, src=0)
        model = function("make")(module, *arguments)

        class Model:
            started = False  # this batch

            def start(self):
                """As CS336's tests do, before the gradients of the last step are let go."""
                if given["start"] and not self.started:
                    self.started = True
                    function("start")(model, self)

            def zero_grad(self, *arguments, **options):
                """In the place of the module's, and of an optimizer's."""
                self.start()
                type(module).zero_grad(module, *arguments, **options)

            def __call__(self, *inputs, **options):
                self.start()
                return model(*inputs, **options)

            def finish_gradient_synchronization(self):
                function("finish")(model, self)
                self.started = False

        wrapper = Model()
        module.zero_grad = wrapper.zero_grad
        return wrapper

    def ShardedOptimizer(self, *arguments, **options):
        return getattr(self.adapters, self.given["make"])(*arguments, **options)


def collect_of(path):
    """The module with what the cases of an exercise do in a rank."""
    spec = importlib.util.spec_from_file_location("collect", path)
    collect = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(collect)
    return collect


def be_rank(given, path, connection, output):
    """In a new process: runs one case. Does not return."""
    os.setsid()
    os.dup2(output.fileno(), 1), os.dup2(output.fileno(), 2)
    os.chdir(given["folder"])
    witness = remote.Witness(connection)
    status = 1
    try:
        torch.set_num_threads(1)
        if given["ledger"]:
            REFUSED.update(AROUND_THE_LEDGER), ALLOWED.discard("threading")
        ANSWERS.update(given["answers"])
        collect = collect_of(given["collect"])  # before the student's code: it keeps the functions that it found
        if given["rank"] == given["size"]:  # the single process
            witness.tell({"data": collect.SINGLE[given["case"]](witness, given["size"])})
            os._exit(0)
        dist.Backend.register_backend("ringside", remote.connect(witness, given["rank"], given["size"], os.getpid()), extended_api=True, devices=["cpu"])
        dist.init_process_group("ringside", store=dist.HashStore(), rank=given["rank"], world_size=given["size"])
        student = Adapted(given["adapters"]) if given.get("adapters") else load(path)
        witness.tell({"data": collect.CASES[given["case"]](witness, student, given["rank"], given["size"])})
        status = 0
    except NotImplementedError as error:
        witness.tell({"error": str(error), "kind": "not_written" if "is not yet written" in str(error) else "error"})
    except EOFError:
        pass
    except BaseException as error:
        own = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        where = f" ({path.name}:{own[-1].lineno})" if own and not isinstance(error, dist.DistError) else ""
        witness.tell({"error": f"{error if isinstance(error, RuntimeError) else f'{type(error).__name__}: {error}'}{where}"})
    finally:
        sys.stdout.flush()
        os._exit(status)


def main(control):
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE: no process of this user may look into this one, or into another rank
    ended = {}
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, 10_000, 2)
        if not text:
            return
        asked = json.loads(text)
        if "check" in asked:
            answer = fault_of(Path(asked["check"]), asked.get("ledger", False), asked.get("answers", ()))
        elif "import" in asked:
            if "torch" not in sys.modules:
                import_torch()
            if asked["import"] not in sys.modules:
                importlib.import_module(asked["import"])
                gc.freeze()
            answer = {}
        elif "fork" in asked:
            pid = os.fork()
            if pid == 0:
                control.close()
                be_rank(asked["fork"], Path(asked["fork"]["path"]), socket.socket(fileno=descriptors[0]), os.fdopen(descriptors[1], "wb"))
            for each in descriptors:
                os.close(each)
            answer = {"pid": pid}
        else:
            pid = asked.get("look") or asked.get("reap")
            if pid not in ended:
                done, status = os.waitpid(pid, os.WNOHANG if "look" in asked else 0)
                ended[pid] = status if done else None
            answer = {"status": ended.pop(pid) if ended[pid] is None or "reap" in asked else ended[pid]}
        control.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
