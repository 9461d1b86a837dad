# Makes {{name}}.wasm of app.py and what it imports. What requirements.txt names is in .venv, installed when that changes.
set -e
if ! [ .venv/installed.txt -nt requirements.txt ]; then
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
    touch .venv/installed.txt
fi
# Packages come from .venv and not from the system; of an error, Python's part is enough.
VIRTUAL_ENV=.venv RUST_BACKTRACE=0 .venv/bin/componentize-py --quiet --wit-path wit --world proxy componentize app --output {{name}}.wasm
