//! The templates of `millpond new`: each is a folder of `templates/`, embedded in the program.
//!
//! A template's `template.toml` says what it is and what it needs; all other files become the application, with
//! `{{name}}` replaced by its name. Adding a template is adding a folder.

use contract::Name;
use include_dir::{Dir, DirEntry, include_dir};
use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path};

static FOLDER: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/templates");

/// The file of a template that is about it and not part of it.
const ABOUT: &str = "template.toml";
/// What stands for the application's name.
const NAME: &str = "{{name}}";

/// A template.
#[derive(Debug)]
pub(crate) struct Template {
    /// As it is called.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) about: About,
    folder: &'static Dir<'static>,
}

/// What a template's `template.toml` says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    /// In a line.
    pub(crate) summary: String,
    /// What must be installed to build it.
    pub(crate) needs: String,
}

/// All templates, by name.
pub(crate) fn all() -> Vec<Template> {
    let mut templates: Vec<Template> = FOLDER
        .dirs()
        .filter_map(|folder| {
            let about = folder.get_file(folder.path().join(ABOUT))?.contents_utf8()?;
            Some(Template {
                name: folder.path().to_str()?,
                about: toml::from_str(about).ok()?,
                folder,
            })
        })
        .collect();
    templates.sort_by_key(|template| template.name);
    templates
}

impl Template {
    /// Writes an application of this name into a folder.
    pub(crate) fn write(&self, name: &Name, into: &Path) -> io::Result<()> {
        fs::create_dir_all(into)?;
        self.write_below(self.folder, name, into)
    }

    fn write_below(&self, folder: &Dir<'_>, name: &Name, into: &Path) -> io::Result<()> {
        for entry in folder.entries() {
            let path = entry
                .path()
                .strip_prefix(self.folder.path())
                .unwrap_or(entry.path());
            let to = into.join(path);
            match entry {
                DirEntry::Dir(folder) => {
                    fs::create_dir_all(to)?;
                    self.write_below(folder, name, into)?;
                }
                DirEntry::File(_) if path == Path::new(ABOUT) => {}
                DirEntry::File(file) => match file.contents_utf8() {
                    Some(text) => fs::write(to, text.replace(NAME, name.as_str()))?,
                    None => fs::write(to, file.contents())?,
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_whole() {
        let templates = all();
        assert_eq!(
            templates.len(),
            FOLDER.dirs().count(),
            "each folder has a good {ABOUT}"
        );
        let name: Name = "a-pond".parse().unwrap();
        for template in templates {
            let folder = tempfile::tempdir().unwrap();
            template.write(&name, folder.path()).unwrap();
            let text = fs::read_to_string(folder.path().join("millpond.toml")).unwrap();
            let manifest = manifest::parse(&text).unwrap();
            assert_eq!(manifest.application.name, name);
            let function = &manifest.function[&name];
            let build = function.build.as_ref().unwrap();
            assert!(!build.watch.is_empty(), "{}", template.name);
            assert_eq!(manifest.trigger.http[0].path, "/a-pond");
            let globs: Vec<&str> = build.watch.iter().map(String::as_str).collect();
            let sources = crate::watch::look(folder.path(), &globs).unwrap();
            assert!(!sources.is_empty(), "{}: `watch` matches nothing", template.name);
            let ignored = fs::read_to_string(folder.path().join(".gitignore")).unwrap();
            assert!(
                ignored.lines().any(|line| line == "/.millpond/"),
                "{}",
                template.name
            );
            let readme = fs::read_to_string(folder.path().join("README.md")).unwrap();
            assert!(
                readme.starts_with("# a-pond\n") && readme.contains("millpond up"),
                "{readme}"
            );
            assert!(!folder.path().join(ABOUT).exists());
        }
    }
}
