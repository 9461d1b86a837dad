//! Which files of the host a program needs to start.

use crate::executable::{self, Executable};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Where libraries lie, in the order in which they are looked for.
pub(crate) const FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
];

/// Libraries of one program, at most.
const MOST: usize = 256;

/// The interpreter, the libraries that the executable asks for, and those that these ask for. `Err` names what is not there.
pub(crate) fn needed(program: &Executable) -> Result<Vec<PathBuf>, String> {
    let Some(interpreter) = &program.interpreter else {
        return Ok(Vec::new());
    };
    let known = FOLDERS.iter().map(Path::new);
    if !interpreter
        .parent()
        .is_some_and(|folder| known.clone().any(|known| known == folder))
    {
        return Err(format!(
            "it is to be loaded by {}, which is not where this host's libraries are",
            interpreter.display()
        ));
    }
    let mut files = vec![interpreter.clone()];
    let mut seen = BTreeSet::new();
    let mut asked = program.libraries.clone();
    while let Some(name) = asked.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if seen.len() > MOST {
            return Err(format!("it asks for more than {MOST} libraries"));
        }
        let path = find(&name)?;
        let bytes = fs::read(&path).map_err(|error: io::Error| format!("{}: {error}", path.display()))?;
        let library = executable::read(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        asked.extend(library.libraries);
        files.push(path);
    }
    Ok(files)
}

fn find(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Err(format!("it asks for the library `{name}`, by a path of its own"));
    }
    let mut places = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    places.find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "it asks for the library `{name}`, which this host has not: link it statically, or install it"
        )
    })
}
