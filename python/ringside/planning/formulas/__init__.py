"""The formulas of the account, each with its unit and source: state, activations, communication,
work, the pipeline's bubble, devices and bounds. Symbols stand at the top of each file."""
