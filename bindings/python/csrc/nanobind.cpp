// nanobind itself, compiled for this Python.
#include <nb_combined.cpp>
