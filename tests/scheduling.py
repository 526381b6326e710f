"""Distribution of groups of tests among workers of pytest-xdist, which goes on after a worker has died.

A test that hangs is such a death: pytest-timeout ends the process. pytest-xdist 3.8 then hands out groups that are done, of which
a worker never reports the end, and gives its successor a single test, with which it waits for another. Each makes the run wait
without an end (pytest-xdist issues 1323, 1327 and 1378). It also runs the test again that the worker died of.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist is published without types
    """`--dist loadgroup`, of which only what is not done returns to the queue. Takes part in the controller's thread only."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Returns the test that the worker died of, which has failed."""
        work = self.assigned_work[node]
        for group in [group for group, tests in work.items() if all(tests.values())]:
            del work[group]
        died_of: str | None = next((test for tests in work.values() for test, is_done in tests.items() if not is_done), None)
        if died_of is None:
            del self.assigned_work[node]
            return None
        for group, tests in work.items():
            if died_of in tests:
                tests[died_of] = True
                if all(tests.values()):
                    del work[group]
                break
        del self.assigned_work[node]
        self.workqueue.update(work)
        for each in self.assigned_work:
            self._reschedule(each)
        return died_of

    def _reschedule(self, node: WorkerController) -> None:
        """Gives a worker groups until it has more than two tests: it runs one only when it knows the next one."""
        while not node.shutting_down and node in self.registered_collections:
            if self.workqueue and self._pending_of(self.assigned_work[node]) > 2:
                return
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Replaces `--dist loadgroup`; every other distribution stays."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None
