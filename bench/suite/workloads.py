"""All that can be run."""

from suite import generator, programs


def all_workloads():
    return [*generator.workloads(), *programs.workloads()]
