"""Does something as often as it is told, after it was done three times, and prints how long each took and what this process used of its processor."""

import json
import resource
import time


def measured(act, count):
    for _ in range(3):
        act()
    times = []
    before, spent = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    spent, after = time.process_time() - spent, resource.getrusage(resource.RUSAGE_SELF)
    user, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    print(json.dumps({"times": times, "cpu": spent / count, "user": user / count, "kernel": kernel / count}))
