//! What AWS Lambda's image for Python has beside the standard library, and which of that a function needs.

use crate::package::python;
use manifest::Function;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Each package with its version and the digest of its file.
const LIST: &str = include_str!("../../../python/lambda-image.txt");

/// Looks for imports.
const PROGRAM: &str = include_str!("imports.py");

/// Who asks services of AWS other than S3 and Lambda does so by this.
const BOTO3: &str = "boto3";

/// A package of the image.
#[derive(Debug)]
pub(crate) struct Package {
    name: &'static str,
    module: &'static str,
    /// Modules that it imports.
    requires: &'static [&'static str],
    /// Whether a function that imports it has no other by that name: boto3 and botocore are there without it, and s3transfer is boto3's.
    is_missed: bool,
}

static PACKAGES: [Package; 7] = [
    Package {
        name: BOTO3,
        module: BOTO3,
        requires: &["botocore", "jmespath", "s3transfer"],
        is_missed: false,
    },
    Package {
        name: "botocore",
        module: "botocore",
        requires: &["dateutil", "jmespath", "urllib3"],
        is_missed: false,
    },
    Package {
        name: "jmespath",
        module: "jmespath",
        requires: &[],
        is_missed: true,
    },
    Package {
        name: "python-dateutil",
        module: "dateutil",
        requires: &["six"],
        is_missed: true,
    },
    Package {
        name: "s3transfer",
        module: "s3transfer",
        requires: &["botocore"],
        is_missed: false,
    },
    Package {
        name: "six",
        module: "six",
        requires: &[],
        is_missed: true,
    },
    Package {
        name: "urllib3",
        module: "urllib3",
        requires: &[],
        is_missed: true,
    },
];

impl Package {
    /// As pip is asked for it.
    pub(crate) fn line(&self) -> &'static str {
        let is_its = |line: &&str| {
            line.strip_prefix(self.name)
                .is_some_and(|rest| rest.starts_with("=="))
        };
        LIST.split_inclusive('\n').find(is_its).unwrap_or_default()
    }

    /// As people are told of it: with its version.
    pub(crate) fn named(&self) -> String {
        let line = self.line();
        line.split_once(' ')
            .map_or(line, |(package, _)| package)
            .replace("==", " ")
    }
}

/// Where a function's own files are.
pub(crate) enum Place<'a> {
    /// By their names.
    Files(&'a BTreeMap<String, PathBuf>),
    /// In a ZIP file.
    Archive(&'a Path),
}

/// What the program is asked.
#[derive(Serialize)]
struct Asked<'a> {
    handler: String,
    known: Vec<&'static str>,
    files: Option<&'a BTreeMap<String, PathBuf>>,
    archive: Option<&'a Path>,
}

/// Modules of the image that a function needs and that are not among its own files.
pub(crate) fn imports(function: &Function, place: &Place<'_>) -> Vec<String> {
    let handler = function.handler.as_deref().unwrap_or_default();
    let handler = handler.rsplit_once('.').map_or(handler, |(module, _)| module);
    let known: Vec<_> = PACKAGES
        .iter()
        .filter(|package| package.is_missed)
        .map(|package| package.module)
        .collect();
    let (files, archive) = match *place {
        Place::Files(files) => (Some(files), None),
        Place::Archive(path) => (None, Some(path)),
    };
    let asked = Asked {
        handler: handler.replace('/', "."),
        known,
        files,
        archive,
    };
    // Without a Python there is no package but one that is there already; and what is none, the node says.
    let said = run(PROGRAM, &asked).unwrap_or_default();
    let mut modules: Vec<_> = said.lines().map(str::to_owned).collect();
    if !function.grants.aws.is_empty() {
        modules.push(BOTO3.to_owned());
    }
    modules
}

/// What a program in Python prints that is given this, in JSON.
pub(crate) fn run(program: &str, given: &impl Serialize) -> io::Result<String> {
    let mut child = Command::new(python())
        .args(["-I", "-S", "-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(given)?)?;
    }
    let said = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Whether a module is among the files of these names.
pub(crate) fn has<'a>(files: impl IntoIterator<Item = &'a String>, module: &str) -> bool {
    files.into_iter().any(|file| {
        file.strip_prefix(module)
            .is_some_and(|rest| rest.starts_with('/') || rest == ".py")
    })
}

/// The packages that bring these modules, and all that they require, but for modules that are there.
pub(crate) fn packages(modules: &[String], is_there: impl Fn(&str) -> bool) -> Vec<&'static Package> {
    let mut wanted: Vec<&str> = modules.iter().map(String::as_str).collect();
    let mut found: Vec<&'static Package> = Vec::new();
    while let Some(module) = wanted.pop() {
        let Some(package) = PACKAGES.iter().find(|package| package.module == module) else {
            continue;
        };
        if !is_there(module) && found.iter().all(|other| other.module != module) {
            found.push(package);
            wanted.extend(package.requires);
        }
    }
    found.sort_by_key(|package| package.name);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn function(handler: &str, grants: &str) -> Function {
        let text = format!(
            "[application]\nname = \"a\"\n[function.f]\nsource = \"src\"\nhandler = {handler:?}\n{grants}"
        );
        let manifest = manifest::parse(&text).unwrap();
        manifest.function.into_values().next().unwrap()
    }

    fn names(packages: &[&Package]) -> Vec<&'static str> {
        packages.iter().map(|package| package.name).collect()
    }

    #[test]
    fn each_package_is_pinned_and_all_that_is_required_is_one() {
        for package in &PACKAGES {
            assert!(
                package.line().contains(" --hash=sha256:") && package.line().ends_with('\n'),
                "{package:?}"
            );
            for module in package.requires {
                assert!(PACKAGES.iter().any(|other| other.module == *module), "{module}");
            }
        }
        let lines = LIST.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), PACKAGES.len());
        assert!(PACKAGES[6].named().starts_with("urllib3 2."));
    }

    #[test]
    fn what_is_there_is_not_added() {
        let modules =
            |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let nothing = |_: &str| false;
        assert_eq!(
            names(&packages(&modules(&["dateutil", "urllib3"]), nothing)),
            ["python-dateutil", "six", "urllib3"]
        );
        let six = |module: &str| module == "six";
        assert_eq!(
            names(&packages(&modules(&["dateutil", "six"]), six)),
            ["python-dateutil"]
        );
        assert_eq!(packages(&modules(&["boto3"]), nothing).len(), PACKAGES.len());
        let files = modules(&["app.py", "six.py", "urllib3/__init__.py", "dateutils/a.py"]);
        let found: Vec<_> = ["six", "urllib3", "dateutil", "app"]
            .into_iter()
            .filter(|module| has(&files, module))
            .collect();
        assert_eq!(found, ["six", "urllib3", "app"]);
    }

    #[test]
    fn imports_are_followed_through_the_functions_own_modules() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::new();
        for (name, text) in [
            (
                "web/app.py",
                "from . import one\nimport own.deep.two, six_of_ours",
            ),
            ("web/__init__.py", ""),
            ("web/one.py", "def late():\n    from dateutil.parser import parse"),
            (
                "own/deep/two.py",
                "from ..near import nothing\nfrom .three import x",
            ),
            (
                "own/deep/three.py",
                "import importlib\nimportlib.import_module('urllib3.util')",
            ),
            // Nobody imports this, and this is no Python.
            ("tests.py", "import six"),
            ("six_of_ours.py", "import six ("),
            ("jmespath/__init__.py", ""),
            ("web/two.py", "import jmespath"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            files.insert(name.to_owned(), path);
        }
        let place = Place::Files(&files);
        assert_eq!(
            imports(&function("web/app.handler", ""), &place),
            ["dateutil", "urllib3"]
        );
        // A module that the function has is the function's.
        assert!(imports(&function("web.two.handler", ""), &place).is_empty());
        assert_eq!(imports(&function("tests.handler", ""), &place), ["six"]);
        let grants = "[[function.f.grants.aws]]\nservice = \"sqs\"\nactions = [\"*\"]\nresources = [\"*\"]\n";
        assert_eq!(imports(&function("web.two.handler", grants), &place), ["boto3"]);
    }
}
