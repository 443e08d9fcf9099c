"""`python -m ottla.sim --seed N`: replay one seed, or look for one that fails."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ottla.sim.network.exchange import Violation
from ottla.sim.simulation import DEFAULT_STEPS, Simulation
from ottla.sim.trace import Trace


def main() -> int:
    """Run the seeds; return the exit code, 0 if every seed passed."""
    options = _options()
    failed = [
        seed
        for seed in range(options.seed, options.seed + options.seeds)
        if not _run(seed, options)
    ]
    return 1 if failed else 0


def _options() -> Namespace:
    parser = ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from the first on")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="how long each run is")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    return parser.parse_args()


def _run(seed: int, options: Namespace) -> bool:
    trace = Trace(print if options.trace else None)
    simulation = Simulation(seed, options.steps, trace)
    try:
        simulation.run()
    except Violation as violation:
        print(*trace.lines, sep="\n", file=sys.stderr)
        print(f"seed {seed}: {violation}", file=sys.stderr)
        if violation.__cause__ is not None:
            import traceback

            traceback.print_exception(violation.__cause__)
        print(f"replay: {replay_command(seed, options.steps)}", file=sys.stderr)
        return False
    requests = sum(simulation.counts.values())
    print(f"seed {seed}: {trace.hash} {requests} requests, {dict(simulation.counts)}")
    return True


def replay_command(seed: int, steps: int) -> str:
    """Return the command that shows a run again."""
    return f"python -m ottla.sim --seed {seed} --steps {steps} --trace"


if __name__ == "__main__":
    sys.exit(main())
