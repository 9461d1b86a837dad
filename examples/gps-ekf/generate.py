#!/usr/bin/env python3
"""Simulates a drive, lets the native program follow it, checks it against numpy, and writes `vectors/`.

    make -C .. gps-ekf.native && python3 generate.py

A car drives 120 s through gentle turns while eight satellites on circular orbits of the GPS radius move over it. Every
pseudorange has Gaussian noise of 5 m, the receiver's clock drifts. The seed is fixed. Each request is the program's own last
response with the new satellites added, as a client would send it; each response is compared with the textbook's equations
written in numpy (inverse and all) before anything is written.
"""

import subprocess
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
VECTORS = HERE / "vectors"
PROGRAM = HERE.parents[1] / "build" / "examples" / "gps-ekf.native"
SEED = 4
EPOCHS = 120
STEP = 1.0
KEPT = (0, 1, 2, 30, 60, 119)
RANGE_NOISE = 5.0  # m
EARTH_MU = 3.986004418e14  # m^3/s^2
ORBIT = 26_560_000.0  # m
EARTH = 6_378_137.0  # m


def simulate(generator):
    """(position, clock bias, [(satellite, pseudorange)]) of each epoch."""
    up = np.array([np.cos(0.83) * np.cos(0.15), np.cos(0.83) * np.sin(0.15), np.sin(0.83)])
    east = np.cross([0, 0, 1], up) / np.linalg.norm(np.cross([0, 0, 1], up))
    north = np.cross(up, east)
    position, bias, drift = EARTH * up, 3000.0, 0.4
    # Eight directions well above the horizon, each on a circular orbit of its own.
    orbits = []
    for index in range(8):
        azimuth, elevation = 2 * np.pi * index / 8 + generator.uniform(-0.3, 0.3), generator.uniform(0.3, 1.3)
        line = np.sin(elevation) * up + np.cos(elevation) * (np.cos(azimuth) * north + np.sin(azimuth) * east)
        along = -position @ line + np.sqrt((position @ line) ** 2 + ORBIT**2 - EARTH**2)
        radial = (position + along * line) / ORBIT
        sideways = np.cross(radial, generator.standard_normal(3))
        orbits.append((radial, sideways / np.linalg.norm(sideways)))
    rate = np.sqrt(EARTH_MU / ORBIT**3)
    for epoch in range(EPOCHS):
        time = epoch * STEP
        satellites = []
        for radial, sideways in orbits:
            satellite = np.round(ORBIT * (np.cos(rate * time) * radial + np.sin(rate * time) * sideways), 3)
            distance = np.linalg.norm(position - satellite) + bias + generator.normal(0, RANGE_NOISE)
            satellites.append((satellite, round(float(distance), 3)))
        yield position, bias, satellites
        heading = 0.5 * np.sin(time / 15) + time / 60
        speed = 14 + 4 * np.sin(time / 20)
        position = position + STEP * speed * (np.cos(heading) * north + np.sin(heading) * east)
        drift += generator.normal(0, 0.05)
        bias += drift * STEP + generator.normal(0, 0.3)


def reference(state, covariance, satellites):
    """One step of the filter by the textbook's equations; the constants are those of gps-ekf.c."""
    positions = np.array([s for s, _ in satellites])
    ranges = np.array([r for _, r in satellites])

    def measure(x):
        differences = x[:3] - positions
        distances = np.linalg.norm(differences, axis=1)
        jacobian = np.hstack([differences / distances[:, None], np.ones((len(ranges), 1)), np.zeros((len(ranges), 4))])
        return ranges - distances - x[3], jacobian

    if state is None:
        x = np.zeros(8)
        for _ in range(20):
            residual, jacobian = measure(x)
            x[:4] += np.linalg.lstsq(jacobian[:, :4], residual, rcond=None)[0]
        return x, np.block(
            [[25 * np.linalg.inv(jacobian[:, :4].T @ jacobian[:, :4]), np.zeros((4, 4))], [np.zeros((4, 4)), 100 * np.eye(4)]]
        )
    transition = np.block([[np.eye(4), STEP * np.eye(4)], [np.zeros((4, 4)), np.eye(4)]])
    density = np.diag([1, 1, 1, 0.04])
    noise = np.block([[density * STEP**3 / 3, density * STEP**2 / 2], [density * STEP**2 / 2, density * STEP]])
    noise[3, 3] += 0.4 * STEP
    x = transition @ state
    p = transition @ covariance @ transition.T + noise
    residual, jacobian = measure(x)
    gain = p @ jacobian.T @ np.linalg.inv(jacobian @ p @ jacobian.T + 25 * np.eye(len(ranges)))
    return x + gain @ residual, (np.eye(8) - gain @ jacobian) @ p


def parse(text):
    """The state and the covariance of a response."""
    lines = {line.split()[0]: np.array([float(word) for word in line.split()[1:]]) for line in text.splitlines()}
    covariance = np.zeros((8, 8))
    covariance[np.triu_indices(8)] = lines["covariance"]
    return lines["state"], covariance + np.triu(covariance, 1).T


def main():
    VECTORS.mkdir(exist_ok=True)
    generator = np.random.default_rng(SEED)
    response, state, covariance, errors, alone = "", None, None, [], []
    for epoch, (position, bias, satellites) in enumerate(simulate(generator)):
        request = response + f"step {STEP:g}\n"
        request += "".join(f"satellite {s[0]:.3f} {s[1]:.3f} {s[2]:.3f} {r:.3f}\n" for s, r in satellites)
        response = subprocess.run([PROGRAM], input=request, capture_output=True, text=True, check=True).stdout
        x, p = reference(state, covariance, satellites)
        state, covariance = parse(response)
        np.testing.assert_allclose(state, x, rtol=1e-9, atol=1e-5)
        np.testing.assert_allclose(covariance, p, rtol=1e-6, atol=1e-6)
        errors.append(float(np.linalg.norm(state[:3] - position)))
        alone.append(float(np.linalg.norm(reference(None, None, satellites)[0][:3] - position)))
        if epoch in KEPT:
            name = "first-fix" if epoch == 0 else f"second-{epoch}"
            (VECTORS / f"{name}.input.txt").write_text(request)
            (VECTORS / f"{name}.output.txt").write_text(response)
            (VECTORS / f"{name}.truth.txt").write_text("state " + " ".join(f"{v:.3f}" for v in [*position, bias]) + "\n")
    print(f"mean error of position over the last 100 s: {np.mean(errors[-100:]):.2f} m; of fixes without a filter {np.mean(alone[-100:]):.2f} m")

    fix = (VECTORS / "first-fix.input.txt").read_text()
    bad = {
        "empty": ("", "there is no satellite"),
        "word": ("step 1\nplanet 1 2 3 4\n", "line 2: begins with none of step, state, covariance, satellite, predicted, #"),
        "number": ("satellite 1 2 three 4\n", "line 1: not a decimal number between 1e-22 and 1e22"),
        "not-finite": ("satellite 1 2 nan 4\n", "line 1: not a decimal number between 1e-22 and 1e22"),
        "few-numbers": ("step\n", "line 1: too few numbers"),
        "many-numbers": ("step 1 2\n", "line 1: too many numbers"),
        "step": ("step -1\n", "line 1: the step must be more than 0 and at most 3600 seconds"),
        "three-satellites": ("".join(fix.splitlines(keepends=True)[:4]), "the first fix needs at least four satellites"),
        "one-place": ("satellite 2e7 0 0 2e7\n" * 4, "the satellites do not determine a position"),
        "second-step": ("step 1\nstate 1 2 3 4 5 6 7 8\n" + fix, "line 3: a second step"),
        "state-alone": ("state 1 2 3 4 5 6 7 8\n" + fix, "a state and its covariance come together or not at all"),
        "variance": ("covariance" + " 0" * 36 + "\n", "line 1: a variance is not positive"),
        "33-satellites": ("satellite 2e7 0 0 2e7\n" * 33, "line 33: more than 32 satellites"),
        "too-long": ("#" * 70_000, "the input is too long"),
    }
    for name, (content, message) in bad.items():
        (VECTORS / f"bad-{name}.input.txt").write_text(content)
        (VECTORS / f"bad-{name}.error.txt").write_text(f"gps-ekf: {message}\n")


if __name__ == "__main__":
    main()
