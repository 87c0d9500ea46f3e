"""Accounting of CPU time: a process is measured with its descendants, each of them once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slackwater.runtime.service import cpu

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.communicate()
"""


@pytest.mark.parametrize("trees", [cpu._trees, cpu._scanned_trees])
def test_a_tree_has_the_descendants_of_a_process_but_those_with_a_tree_of_their_own(
    trees: object,
) -> None:
    assert callable(trees)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        found = trees([os.getpid(), parent.pid])
        assert found[parent.pid] == [parent.pid, grandchild]
        assert found[os.getpid()][0] == os.getpid()
        assert not {parent.pid, grandchild} & {*found[os.getpid()]}
        parent.communicate("\n")
    assert trees([parent.pid]) == {parent.pid: [parent.pid]}
