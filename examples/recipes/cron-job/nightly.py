"""A cron job that must not run twice: started by cron on every machine, it runs on one of them, once for each day.

    0 3 * * *  PYTHONPATH=clients python3 nightly.py "$(date -u +%F)"

The day is the key, handed over by cron: a job that looked at the clock itself would use another key after midnight. What it
prints and how it ends is for cron's mail: 0 it is done (here or elsewhere), 75 it runs elsewhere, 3 nobody knows.
"""

import os
import sys

from onlyonce import Claims, InFlight, OutcomeUnknown

claims = Claims(os.environ.get("CLAIMS", "http://127.0.0.1:8090"), token=os.environ.get("ONLYONCE_TOKEN"))


def report(execution, day, place):
    # A step that is finished is not run again when a later one fails and an operator frees the job.
    lines = execution.step("collect", lambda: ["%s: 3 payments" % day])
    with open(place, "a") as file:
        file.write("\n".join(lines) + "\n")
    return {"lines": len(lines), "by": os.getpid()}


def main():
    day, place = sys.argv[1], os.environ.get("REPORT", "report.txt")
    try:
        # `hold`, the default: a run that died half way is not started again before somebody has looked.
        done = claims.run("nightly-report/" + day, lambda execution: report(execution, day, place), retention="30d")
    except InFlight:
        print("runs elsewhere")
        return 75
    except OutcomeUnknown as error:
        print("%s: look, then resolve it" % error)
        return 3
    print("done %s" % ("here" if done["by"] == os.getpid() else "elsewhere"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
