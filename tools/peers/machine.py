"""Names the machine that figures were measured on."""
import os
import platform


def machine():
    """One line: the processor and its kind, how many cores this process may use, the kernel."""
    fields = {}
    with open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "").split()
    widest = next((bits for bits, flag in ((512, "avx512f"), (256, "avx2"), (128, "sse2"))
                   if flag in flags), None)
    parts = [f"{fields.get('model name', platform.machine())} "
             f"(family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})",
             f"{len(os.sched_getaffinity(0))} cores"]
    parts += [f"vectors of {widest} bits"] if widest else []
    return ", ".join([*parts, f"{platform.system()} {platform.release()}"])
