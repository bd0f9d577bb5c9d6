// A shared library without a parallel strategy.
extern "C" const int ringside_something_else = 1;
