#!/usr/bin/env python3
"""Reads the machine code of the GPU's kernels: registers, spills, shared memory, width of loads.

    machine_code_test.py LIBRARY...      libraries with GPU code; --show prints every kernel

No GPU is needed, only cuobjdump and nvdisasm: of the CUDA Toolkit, or the Python packages
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm. Without them the test is skipped.

A limit is not what a kernel has today but what it may not exceed: two blocks on a multiprocessor
instead of one, 16 bytes in an instruction instead of 2. So a new compiler passes.
"""
import os
import re
import shutil
import subprocess
import sys

BF16, FP32 = "Bf16", "float"

# Of the kernels whose name matches: the most registers, and instructions that must occur, "4 STG"
# at least four times: nvcc has split some stores of a kernel and not others. "max 2 BAR" may occur
# twice: attention synchronises once for each tile and once at the end. It stores its results, one
# or two tiles, and nothing else to global memory. "loop 480": in the loop with the products of
# matrices there are at most 480 instructions for each 64 HMMA, which are 16 queries, 64 keys and 64
# columns forward. A tile before the diagonal runs four fifths of them: the others mask scores, or
# load heads that are not aligned.
# 65536 registers on a multiprocessor: 128 allow 2 blocks of 256 threads, or 1 of 512.
# Kernel 1 is one_shot: a packet is one word of 8 bytes. The kernels that add, and their limit, load
# from eight ranks at once. "row 8 LDG.E.128": eight before a store or a branch, so that they are in
# flight together; kernels 4 and 5, all_gather and broadcast, only copy.
LIMITS = [
    (r"^void collective<\(Kernel\)1,", 64, ["LDG?.E.64.STRONG.SYS", "STG?.E.64.STRONG.SYS"]),
    (r"^void collective<\(Kernel\)[03],", 128, ["row 8 LDG.E.128", "STG.E.128"]),
    (r"^void collective<\(Kernel\)[245],", 128, ["LDG.E.128", "STG.E.128"]),
    (r"^void collective<\(Kernel\)[45], (true|\(bool\)1)", 128, ["row 8 LDG.E.128"]),
    (r"^void (sum|limit)<", 128, ["row 8 LDG.E.128", "STG.E.128"]),
    (r"run<RmsNormBackward<(Bf16|float), (32|256)>", 128, ["12 LDG.E.128", "4 STG.E.128"]),
    (r"run<RmsNorm<", 64, ["LDG.E.128", "STG.E.128"]),
    (r"run<CopyStrided<unsigned __int128", 64, ["LDG.E.128", "STG.E.128"]),
    (r"run<Convert<", 64, ["LDG.E.128", "STG.E.128"]),
    (r"run<Rope<", 80, ["8 LDG.E.128", "4 STG.E.128"]),
    (r"run<CrossEntropy<", 64, ["LDGSTS.E.*128", "LDG.E.128", "STG.E.128"]),
    (r"run<CrossEntropyBackward<", 64, ["LDG.E.128", "STG.E.128"]),
    (r"run<EmbeddingBackward<", 64, ["LDG.E.128", "STG.E.128"]),
    (r"run<EmbeddingPartialSums<", 64, ["LDG.E.128", "STG.E.128"]),
    (r"run<OptimizerUpdate<AdamW", 80, ["4 LDG.E.128", "4 STG.E.128"]),
    (r"run<OptimizerUpdate<(Sgd|Momentum)", 64, ["2 LDG.E.128", "STG.E.128"]),
    (r"run<Attention(Forward|KeysBackward|QueriesBackward)<Bf16", 255, ["LDGSTS.E.*128", "HMMA", "LDSM"]),
    (r"run<Attention(Forward|KeysBackward)<Bf16, 64>", 255, ["loop 480"]),
    (r"run<AttentionQueriesBackward<Bf16, 64>", 255, ["loop 330"]),
    (r"run<Attention(Forward|KeysBackward|QueriesBackward)<Bf16, 128>", 255, ["loop 320"]),
    (r"run<Attention(Forward|KeysBackward|QueriesBackward)<float", 255, ["LDGSTS.E.*128", "FFMA"]),
    (r"run<Attention(Forward|KeysBackward|QueriesBackward)<", 255, ["max 2 BAR", "max 2 STG.E.128"]),
]

# Bytes that a kernel may keep in memory for want of registers; others none. The first holds sums of
# 96 KiB in the registers of 128 threads. What these spill is needed once for a tile or a row. The last
# one, a reduce_scatter through arenas, does so on sm_80.
SPILLS = [(r"run<AttentionForward<Bf16, 128>", 48), (r"run<AttentionKeysBackward<float, 64>", 16),
          (r"run<RmsNorm<Bf16, 256>", 8), (r"^void collective<\(Kernel\)3, (true|\(bool\)1), (Bf16|Fp16)", 8)]


def tool(name):
    for folder in os.environ.get("RINGSIDE_CUDA_TOOLS", "").split(":") + ["/usr/local/cuda/bin"]:
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            return path
    return shutil.which(name)


def short(name):
    """void run<autograd::cuda::RmsNorm<autograd::Bf16> >(...) -> void run<RmsNorm<Bf16>>"""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"\b(?:ringside|autograd|collectives|cuda|one_sided)::", "", name)
    name = re.sub(r"> >", ">>", re.sub(r"> >", ">>", name))
    return re.sub(r"\((?!Kernel).*$", "", name)


def demangled(names):
    listed = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                            check=True)
    return dict(zip(names, map(short, listed.stdout.splitlines())))


def kernels_of(library, cuobjdump):
    """name -> {"REG": ..., "STACK": ..., "SHARED": ..., "code": [instructions], "loops": [parts of code]}"""
    environment = dict(os.environ, PATH=f"{os.path.dirname(tool('nvdisasm'))}:{os.environ['PATH']}")
    read = lambda option: subprocess.run([cuobjdump, option, library], capture_output=True, text=True,
                                         check=True, env=environment).stdout
    kernels, name = {}, None
    for line in read("-res-usage").splitlines():
        if match := re.match(r"\s*Function (\S+):", line):
            name = match[1]
        elif name and "REG:" in line:
            usage = dict(re.findall(r"(\w+):(\d+)", line))
            kernels[name] = {key: int(usage.get(key, 0)) for key in ("REG", "STACK", "SHARED", "LOCAL")}
            kernels[name] |= {"code": [], "loops": []}
            name = None
    for line in read("-sass").splitlines():
        if match := re.match(r"\s*Function : (\S+)", line):
            name = match[1]
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)", line):
            code, loops = kernels[name]["code"], kernels[name]["loops"]
            code.append(match[2])
            # A branch backwards ends a loop. An instruction has 16 bytes.
            target = re.search(r"0x([0-9a-f]+)", match[3]) if match[2].startswith("BRA") else None
            if target and int(target[1], 16) < int(match[1], 16):
                loops.append(code[int(target[1], 16) // 16:])
    names = demangled(list(kernels))
    return {names[each]: kernel for each, kernel in kernels.items()}


def longest_row(code, instruction):
    """How many of `instruction` stand before a store or a branch, at most."""
    longest = row = 0
    for each in code:
        if re.match(r"STG|BRA|BAR|EXIT", each):
            row = 0
        row += bool(re.match(instruction, each))
        longest = max(longest, row)
    return longest


def largest_loop(kernel):
    """How many HMMA, products of matrices, and how many instructions the loop with most of the former has."""
    return max(((sum("HMMA" in code for code in loop), len(loop)) for loop in kernel["loops"]), default=(0, 0))


def faults_of(name, kernel):
    spilled = kernel["STACK"] + kernel["LOCAL"]
    if spilled > max((limit for pattern, limit in SPILLS if re.search(pattern, name)), default=0):
        yield f"spills {spilled} bytes of registers"
    # On sm_90 the compiler counts a KiB more, which the system takes of every block.
    if "run<" in name and kernel["SHARED"] % 1024 > 128:
        yield f"has {kernel['SHARED']} bytes of static shared memory, where launch() counts 128"
    for pattern, registers, instructions in LIMITS:
        if not re.search(pattern, name):
            continue
        if kernel["REG"] > registers:
            yield f"takes {kernel['REG']} registers, more than {registers}"
        for wanted in instructions:
            times, _, instruction = wanted.rpartition(" ")
            seen = sum(bool(re.match(instruction, code)) for code in kernel["code"])
            if times.startswith("row "):
                if longest_row(kernel["code"], instruction) < int(times[4:]):
                    yield f"has fewer than {times[4:]} instructions {instruction} in flight at once"
            elif times == "loop":
                most = largest_loop(kernel)
                if most[1] * 64 > int(instruction) * most[0]:
                    yield f"has a loop of {most[1]} instructions for {most[0]} HMMA: for each 64 more than {instruction}"
            elif times.startswith("max "):
                if seen > int(times[4:]):
                    yield f"has {seen} instructions {instruction}, more than {times[4:]}"
            elif seen < int(times or 1):
                yield f"has {seen} instructions {instruction}, fewer than {times or 1}"


def main():
    libraries = [argument for argument in sys.argv[1:] if argument != "--show"]
    missing = [name for name in ("cuobjdump", "nvdisasm", "c++filt") if not tool(name)]
    if missing:
        print(f"SKIPPED: needs {' and '.join(missing)}: pip install nvidia-cuda-cuobjdump "
              "nvidia-cuda-nvdisasm, and name their folder in RINGSIDE_CUDA_TOOLS")
        return 0
    kernels = {}
    for library in libraries:
        kernels |= kernels_of(library, tool("cuobjdump"))
    if "--show" in sys.argv:
        for name, kernel in sorted(kernels.items()):
            wide = sum("128" in code and code.startswith(("LDG", "STG")) for code in kernel["code"])
            products, instructions = largest_loop(kernel)
            loop = f"{instructions * 64 / products:5.0f} for 64 HMMA" if products else " " * 17
            print(f"{kernel['REG']:4} registers {kernel['STACK']:5} stack {kernel['SHARED']:6} shared "
                  f"{len(kernel['code']):6} instructions {loop} {wide:4} wide "
                  f"{longest_row(kernel['code'], 'LDG.E.128'):3} in flight  {name}")
    faults = [f"{name} {fault}" for name, kernel in kernels.items()
              for fault in faults_of(name, kernel)]
    faults += [f"no kernel is called {pattern}" for pattern, _, _ in LIMITS
               if not any(re.search(pattern, name) for name in kernels)]
    for fault in faults:
        print("WRONG:", fault)
    print(f"{len(kernels)} kernels, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
