//! Deployment packages of functions in Python: a ZIP file with the function's files, what its `requirements` name, and bytecode of all of it.
//!
//! What requirements come to is written down once, with the digest of each file (`requirements.lock`, beside them), and from then on that is
//! what is installed, or nothing is. What has been installed is kept in the user's cache, so that the next deploy does not do it again.
//!
//! What AWS Lambda's own image has beside Python, its functions import without requiring it. Of that a package gets what the function imports and does not bring.

use crate::{failure::Failure, image};
use manifest::Function;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    env, fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// The interpreter that packages are made with, unless `MILLPOND_PYTHON` names another one.
const PYTHON: &str = "python3";

/// Where a function finds its package; tracebacks name its files so.
const TASK: &str = "/var/task";

/// Files by their names in the package.
type Files = BTreeMap<String, PathBuf>;

/// The package of a function with a `handler`: its `source` as it is, if that is a package already.
pub(crate) fn package(folder: &Path, name: &str, function: &Function) -> Result<Vec<u8>, Failure> {
    let source = folder.join(&function.source);
    let failed = |what: String| move |error: io::Error| Failure::usage(format!("{what}: {error}"), "");
    if source.extension().is_some_and(|extension| extension == "zip") {
        let reading = format!("cannot read the package of `{name}` at {}", source.display());
        let package = fs::read(&source).map_err(failed(reading))?;
        return completed(name, function, &source, package);
    }
    let about = fs::metadata(&source).map_err(|error| {
        Failure::usage(
            format!("cannot read the code of `{name}` at {}: {error}", source.display()),
            "`source` of a function with a `handler` is a file of Python, a folder, or a ZIP file, relative to the manifest",
        )
    })?;
    let collecting = || failed(format!("cannot collect the files of `{name}`"));
    let mut files = Files::new();
    if about.is_dir() {
        collect(&source, "", &mut files).map_err(collecting())?;
    } else if let Some(file) = source.file_name().and_then(|file| file.to_str()) {
        files.insert(file.to_owned(), source.clone());
    }
    let imported = image::imports(function, &image::Place::Files(&files));
    if let Some(requirements) = &function.requirements {
        let installed = install(name, &folder.join(requirements))?;
        let mut all = Files::new();
        collect(&installed, "", &mut all).map_err(collecting())?;
        // The function's own files go before those of others.
        all.extend(files);
        files = all;
    }
    if let Some(installed) = added(name, &imported, |module| image::has(files.keys(), module))? {
        let mut all = Files::new();
        collect(&installed, "", &mut all).map_err(collecting())?;
        all.extend(files);
        files = all;
    }
    let compiled = tempfile::tempdir().map_err(collecting())?;
    compile(&mut files, compiled.path()).map_err(collecting())?;
    zipped(&files).map_err(failed(format!("cannot make the package of `{name}`")))
}

/// A package of Lambda's: as it is, unless the function imports what Lambda's image has.
fn completed(name: &str, function: &Function, source: &Path, package: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let imported = image::imports(function, &image::Place::Archive(source));
    // What is no ZIP file the node refuses.
    let Some(there) = listed(&package) else {
        return Ok(package);
    };
    let Some(installed) = added(name, &imported, |module| image::has(&there, module))? else {
        return Ok(package);
    };
    let complete = || -> io::Result<Vec<u8>> {
        let mut files = Files::new();
        collect(&installed, "", &mut files)?;
        let compiled = tempfile::tempdir()?;
        compile(&mut files, compiled.path())?;
        let mut writer = ZipWriter::new_append(io::Cursor::new(package)).map_err(io::Error::other)?;
        write(&mut writer, &files)?;
        Ok(writer.finish().map_err(io::Error::other)?.into_inner())
    };
    complete().map_err(|error| {
        Failure::usage(
            format!(
                "cannot add to the package of `{name}` at {}: {error}",
                source.display()
            ),
            "",
        )
    })
}

/// The names of a ZIP file's files; `None` if it is none.
fn listed(package: &[u8]) -> Option<Vec<String>> {
    let archive = ZipArchive::new(io::Cursor::new(package)).ok()?;
    let names = archive.file_names().flatten();
    Some(names.map(Cow::into_owned).collect())
}

/// All files of a folder but hidden ones and bytecode.
fn collect(folder: &Path, prefix: &str, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name
            .to_str()
            .filter(|name| !name.starts_with('.') && *name != "__pycache__")
        else {
            continue;
        };
        let path = entry.path();
        let inside = format!("{prefix}{name}");
        if fs::metadata(&path)?.is_dir() {
            collect(&path, &format!("{inside}/"), files)?;
        } else if !name.ends_with(".pyc") {
            files.insert(inside, path);
        }
    }
    Ok(())
}

/// Bytecode for all that is Python, which nobody looks at the sources for: both are in one package. What does not compile has none, and says so when
/// it is imported.
fn compile(files: &mut Files, to: &Path) -> io::Result<()> {
    const PROGRAM: &str = "
import json, py_compile, sys
for source, name, target in json.load(sys.stdin):
    try:
        py_compile.compile(source, target, name, True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except Exception:
        continue
    print(target)
print(sys.implementation.cache_tag)
";
    let mut asked = Vec::new();
    for (number, (name, path)) in files.iter().filter(|(name, _)| name.ends_with(".py")).enumerate() {
        asked.push((
            path.clone(),
            format!("{TASK}/{name}"),
            to.join(number.to_string()),
            name.clone(),
        ));
    }
    let list: Vec<_> = asked
        .iter()
        .map(|(source, name, target, _)| (source, name, target))
        .collect();
    let said = image::run(PROGRAM, &list)?;
    let Some(tag) = said.lines().last().filter(|_| said.lines().count() > 0) else {
        return Ok(());
    };
    for (_, _, target, name) in asked {
        if !target.is_file() {
            continue;
        }
        let (folder, file) = name
            .rsplit_once('/')
            .map_or(("", name.as_str()), |(folder, file)| (folder, file));
        let stem = file.trim_end_matches(".py");
        let slash = if folder.is_empty() { "" } else { "/" };
        files.insert(format!("{folder}{slash}__pycache__/{stem}.{tag}.pyc"), target);
    }
    Ok(())
}

/// Equal files make equal packages.
fn zipped(files: &Files) -> io::Result<Vec<u8>> {
    let mut writer = ZipWriter::new(io::Cursor::new(Vec::new()));
    write(&mut writer, files)?;
    Ok(writer.finish().map_err(io::Error::other)?.into_inner())
}

fn write(writer: &mut ZipWriter<io::Cursor<Vec<u8>>>, files: &Files) -> io::Result<()> {
    for (name, path) in files {
        let runs = fs::metadata(path)?.permissions().mode() & 0o111 != 0;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::DEFAULT)
            .unix_permissions(if runs { 0o755 } else { 0o644 });
        writer
            .start_file(name.as_str(), options)
            .map_err(io::Error::other)?;
        io::copy(&mut fs::File::open(path)?, writer)?;
    }
    Ok(())
}

/// The folder into which what these modules take of Lambda's image has been installed, if any of it is not there.
fn added(
    name: &str,
    modules: &[String],
    is_there: impl Fn(&str) -> bool,
) -> Result<Option<PathBuf>, Failure> {
    let packages = image::packages(modules, is_there);
    if packages.is_empty() {
        return Ok(None);
    }
    let locked: String = packages.iter().map(|package| package.line()).collect();
    let named: Vec<_> = packages.iter().map(|package| package.named()).collect();
    let named = named.join(", ");
    eprintln!("package: added to `{name}`, which needs it as on AWS Lambda and does not bring it: {named}");
    let failed = |error: io::Error| Failure::local(format!("cannot write a list for pip: {error}"), "");
    let mut list = tempfile::NamedTempFile::new().map_err(failed)?;
    list.write_all(locked.as_bytes()).map_err(failed)?;
    let what = format!("{named}, which `{name}` needs and AWS Lambda's image has");
    let hint = "let pip reach a package index, or name a folder that has these files by PIP_NO_INDEX=1 and \
                PIP_FIND_LINKS=FOLDER; or bring the modules with the function's own files, or by its `requirements`";
    installed(&locked, list.path(), &what, hint).map(Some)
}

pub(crate) fn python() -> PathBuf {
    env::var_os("MILLPOND_PYTHON").map_or_else(|| PYTHON.into(), PathBuf::from)
}

/// How a lock file begins: with what it was made from.
const LOCKED: &str = "# millpond: of requirements with SHA-256 ";

/// The folder into which requirements have been installed.
fn install(name: &str, requirements: &Path) -> Result<PathBuf, Failure> {
    let reading = |error: io::Error| {
        Failure::usage(
            format!(
                "cannot read the requirements of `{name}` at {}: {error}",
                requirements.display()
            ),
            "`requirements` is relative to the manifest",
        )
    };
    let text = fs::read(requirements).map_err(reading)?;
    let digest = hex(&Sha256::digest(&text));
    let lock = requirements.with_extension("lock");
    let known = fs::read_to_string(&lock).ok();
    let locked = match known.filter(|known| known.starts_with(&format!("{LOCKED}{digest}\n"))) {
        Some(locked) => locked,
        None => {
            let locked = format!("{LOCKED}{digest}\n{}", resolve(name, requirements)?);
            fs::write(&lock, &locked)
                .map_err(|error| Failure::local(format!("cannot write {}: {error}", lock.display()), ""))?;
            locked
        }
    };
    installed(&locked, &lock, &format!("the requirements of `{name}`"), "")
}

/// The folder into which all that is locked has been installed, from the file in which it stands.
fn installed(locked: &str, lock: &Path, what: &str, hint: &str) -> Result<PathBuf, Failure> {
    let cache = cache().join(&hex(&Sha256::digest(locked.as_bytes()))[..32]);
    if cache.is_dir() {
        return Ok(cache);
    }
    let failed = |error: io::Error| {
        Failure::local(
            format!("cannot keep what is installed in {}: {error}", cache.display()),
            "",
        )
    };
    if let Some(parent) = cache.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let new = cache.with_extension(format!("new{}", std::process::id()));
    let arguments = [
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--require-hashes",
        "--target",
    ];
    let mut pip = pip("install");
    pip.args(arguments).arg(&new).arg("--requirement").arg(lock);
    run(&mut pip, what, hint)?;
    match fs::rename(&new, &cache) {
        // Somebody else was faster, with the same.
        Err(_) if cache.is_dir() => {
            let _ = fs::remove_dir_all(&new);
        }
        renamed => renamed.map_err(failed)?,
    }
    Ok(cache)
}

/// What requirements come to: each package with its version and the digest of its file.
fn resolve(name: &str, requirements: &Path) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct Report {
        install: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        metadata: Metadata,
        download_info: Download,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        version: String,
    }
    #[derive(Deserialize)]
    struct Download {
        #[serde(default)]
        archive_info: Archive,
    }
    #[derive(Default, Deserialize)]
    struct Archive {
        #[serde(default)]
        hashes: BTreeMap<String, String>,
    }
    let mut pip = pip("install");
    pip.args([
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
        "--requirement",
    ]);
    let report = run(
        pip.arg(requirements),
        &format!("the requirements of `{name}`"),
        "",
    )?;
    let report: Report = serde_json::from_slice(&report).map_err(|error| {
        Failure::local(
            format!("pip's report of the requirements of `{name}` is none: {error}"),
            "update pip: 22.2 or later",
        )
    })?;
    let mut lines = Vec::new();
    for Item {
        metadata: Metadata {
            name: package,
            version,
        },
        download_info,
    } in report.install
    {
        let Some(digest) = download_info.archive_info.hashes.get("sha256") else {
            return Err(Failure::usage(
                format!("`{package}`, which `{name}` requires, is no file with a digest"),
                "require released packages, and no folders or repositories",
            ));
        };
        lines.push(format!("{package}=={version} --hash=sha256:{digest}\n"));
    }
    lines.sort();
    Ok(lines.concat())
}

fn pip(verb: &str) -> Command {
    let mut pip = Command::new(python());
    pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", verb]);
    pip
}

fn run(command: &mut Command, what: &str, hint: &str) -> Result<Vec<u8>, Failure> {
    let said = command.stdin(Stdio::null()).output();
    let said = said.map_err(|error| {
        Failure::local(
            format!(
                "cannot install {what}: {} cannot be started: {error}",
                python().display()
            ),
            "install Python 3.11 or later with pip, or name it with MILLPOND_PYTHON",
        )
    })?;
    if said.status.success() {
        return Ok(said.stdout);
    }
    let reason = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(Failure::usage(format!("cannot install {what}: {reason}"), hint))
}

fn cache() -> PathBuf {
    let of = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    base.unwrap_or_else(env::temp_dir).join("millpond/python")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(source: &str) -> Function {
        let text = format!(
            "[application]\nname = \"a\"\n[function.f]\nsource = {source:?}\nhandler = \"app.handler\"\n"
        );
        manifest::parse(&text)
            .unwrap()
            .function
            .into_values()
            .next()
            .unwrap()
    }

    fn names(package: Vec<u8>) -> Vec<String> {
        let package = ZipArchive::new(io::Cursor::new(package)).unwrap();
        let mut names: Vec<_> = package
            .file_names()
            .map(|name| name.unwrap().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_package_has_a_folders_files_and_their_bytecode() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("src/lib/__pycache__")).unwrap();
        for (name, text) in [
            ("src/app.py", "x = 1"),
            ("src/lib/one.py", "y = 2"),
            ("src/lib/broken.py", "y = ("),
            ("src/lib/__pycache__/old.pyc", ""),
            ("src/.hidden", ""),
            ("src/data.txt", "d"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        let packed = package(folder.path(), "f", &function("src")).unwrap();
        assert_eq!(packed, package(folder.path(), "f", &function("src")).unwrap());
        let names = names(packed);
        let sources: Vec<_> = names
            .iter()
            .filter(|name| !name.contains("__pycache__"))
            .collect();
        assert_eq!(sources, ["app.py", "data.txt", "lib/broken.py", "lib/one.py"]);
        let compiled = |stem: &str| {
            names
                .iter()
                .any(|name| name.starts_with(stem) && name.ends_with(".pyc"))
        };
        assert!(
            compiled("__pycache__/app.") && compiled("lib/__pycache__/one."),
            "{names:?}"
        );
        assert!(
            !compiled("lib/__pycache__/broken.") && !compiled("lib/__pycache__/old"),
            "{names:?}"
        );
    }

    #[test]
    fn a_zip_file_is_a_package_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app.py"), "import json").unwrap();
        let packed = package(folder.path(), "f", &function("app.py")).unwrap();
        fs::write(folder.path().join("code.zip"), &packed).unwrap();
        assert_eq!(
            package(folder.path(), "f", &function("code.zip")).unwrap(),
            packed
        );
        // Not a ZIP file: the node says so.
        fs::write(folder.path().join("none.zip"), "none").unwrap();
        assert_eq!(
            package(folder.path(), "f", &function("none.zip")).unwrap(),
            b"none"
        );
    }

    #[test]
    fn a_file_is_a_package_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app.py"), "x = 1").unwrap();
        fs::write(folder.path().join("other.py"), "x = 2").unwrap();
        let names = names(package(folder.path(), "f", &function("app.py")).unwrap());
        assert!(
            names.contains(&"app.py".to_owned()) && !names.contains(&"other.py".to_owned()),
            "{names:?}"
        );
        let error = package(folder.path(), "f", &function("nowhere.py")).unwrap_err();
        assert!(error.to_string().contains("nowhere.py"));
    }
}
