"""The lab: commands that plan, convert and explain. They talk with the core through files."""
