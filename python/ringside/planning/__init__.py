"""What a plan needs and takes, computed by formulas: memory, communication, time.

Reading order: quantity.py (a number that knows its formula), model.py, machine.py, mesh.py,
schedules.py, plan.py; then the formulas, memory.py, accounting.py, fit.py. Nothing here runs a
model. A number has its unit in its name or in its term: bytes, seconds, FLOPs, tokens.
"""
