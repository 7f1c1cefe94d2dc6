//! Models on disk: those of a folder, and the local store, which is the hub's cache with a file of
//! short names in it.

use super::Progress;
use super::hub::cache::{Repository, names_below};
use super::hub::{self, HubId, Place};
use super::model_files::{Wanted, select};
use crate::machine;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// File with the short names, in the cache.
const NAMES: &str = "wf-run-names.json";
/// Longest short name in bytes.
const LONGEST_NAME: usize = 128;
/// Beginning of the names of repositories' folders in the cache.
const REPOSITORY: &str = "models--";

/// A model on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredModel {
    /// Hub id, or the name of the file or folder. Of a model elsewhere on disk, which has a short name only,
    /// the path.
    pub id: String,
    /// The id with the name of the file, if the model is the only one of a repository and one file.
    file: Option<String>,
    /// Short names.
    pub names: Vec<String>,
    /// File or folder to open.
    pub path: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// Time of the latest change of a file.
    pub modified: Option<SystemTime>,
}

/// Result of [`Store::remove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Files of this many bytes were deleted.
    Files(u64),
    /// Short names were removed. The files at this path are not the store's and stay.
    Names(PathBuf),
}

/// The local store of models.
pub struct Store {
    cache: PathBuf,
}

/// Lists the models of a folder: files, folders with one or several models, and repositories of the
/// hub's cache, sorted by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn in_folder(folder: &Path) -> io::Result<Vec<StoredModel>> {
    let mut models = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match (name.strip_prefix(REPOSITORY), path.is_dir()) {
            _ if name.starts_with('.') => {}
            (Some(repository), true) => models.extend(of_repository(folder, repository)),
            (None, true) => models.extend(of_files(&name, &path, &files_in(&path))),
            (_, false) => models.extend(of_file(stem(&name), &path)),
        }
    }
    models.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(models)
}

/// Lists the files of a folder, without its folders.
fn files_in(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Lists the models of a repository of the cache.
fn of_repository(cache: &Path, name: &str) -> Vec<StoredModel> {
    let id = name.replacen("--", "/", 1);
    let repository = Repository::new(cache, &id);
    let snapshot = repository.latest().map(|commit| repository.snapshot(&commit));
    snapshot.map(|s| of_files(&id, &s, &names_below(&s))).unwrap_or_default()
}

/// Lists the models among the files of a folder: the one that they are together, or each file.
fn of_files(id: &str, folder: &Path, files: &[String]) -> Vec<StoredModel> {
    let weights = |name: &&String| is_weights(name);
    if let Ok(picked) = select(files, &Wanted::Any)
        && picked.iter().any(|name| weights(&name))
    {
        let paths: Vec<PathBuf> = picked.iter().map(|name| folder.join(name)).collect();
        let mut model = StoredModel::new(id, folder, &paths);
        model.file = (picked.len() == 1).then(|| format!("{id}/{}", picked[0]));
        return vec![model];
    }
    let each = files.iter().filter(weights);
    each.filter_map(|name| of_file(&format!("{id}/{name}"), &folder.join(name))).collect()
}

/// Returns the model that a file holds.
fn of_file(id: &str, path: &Path) -> Option<StoredModel> {
    let name = path.file_name()?.to_string_lossy();
    (is_weights(&name) && path.is_file()).then(|| StoredModel::new(id, path, &[path.into()]))
}

fn is_weights(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".gguf", ".safetensors"].iter().any(|end| name.ends_with(end))
}

/// Returns the name of a file without the endings of weights.
fn stem(name: &str) -> &str {
    let name = [".gguf", ".safetensors"].iter().find_map(|e| name.strip_suffix(e)).unwrap_or(name);
    name.strip_suffix(".wf").unwrap_or(name)
}

impl StoredModel {
    /// Returns true if the model has this id, which may also name its only file.
    fn is(&self, id: &str) -> bool {
        self.id == id || self.file.as_deref() == Some(id)
    }

    fn new(id: &str, path: &Path, files: &[PathBuf]) -> Self {
        let data: Vec<fs::Metadata> = files.iter().filter_map(|f| fs::metadata(f).ok()).collect();
        Self {
            id: id.into(),
            file: None,
            names: Vec::new(),
            path: path.into(),
            bytes: data.iter().map(fs::Metadata::len).sum(),
            modified: data.iter().filter_map(|data| data.modified().ok()).max(),
        }
    }
}

impl Store {
    /// Opens the store that the environment names (`HF_HUB_CACHE`, `HF_HOME`).
    pub fn from_env() -> Self {
        Self { cache: Place::from_env().cache }
    }

    /// Returns the folder of the store.
    pub fn folder(&self) -> &Path {
        &self.cache
    }

    /// Lists the models with their short names, sorted by id. A store that does not exist has none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn list(&self) -> anyhow::Result<Vec<StoredModel>> {
        let mut models = match in_folder(&self.cache) {
            Ok(models) => models,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", self.cache.display()));
            }
        };
        for (name, id) in self.names()? {
            if let Some(model) = models.iter_mut().find(|model| model.is(&id)) {
                model.names.push(name);
            } else if is_elsewhere(&id) {
                let path = Path::new(&id);
                // What is gone is listed too, so that its name can be removed.
                let model = model_at(path).unwrap_or_else(|| StoredModel::new(&id, path, &[]));
                models.push(StoredModel { names: vec![name], ..model });
            }
        }
        models.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(models)
    }

    /// Gives a model elsewhere on disk a short name, without a copy. Returns its path.
    ///
    /// # Errors
    /// If the path has no model, or the name is invalid.
    pub fn add(&self, path: &Path, name: &str) -> anyhow::Result<PathBuf> {
        check_name(name)?;
        let shown = path.display();
        let path = machine::canonicalize(path).with_context(|| format!("cannot find {shown}"))?;
        let id = path.to_str().with_context(|| format!("{shown} is not UTF-8: rename it"))?;
        ensure!(
            model_at(&path).is_some(),
            "{shown} is not a model: expected a .gguf or .safetensors file, or a folder with one model"
        );
        let mut names = self.names()?;
        names.insert(name.into(), id.into());
        fs::create_dir_all(&self.cache)
            .with_context(|| format!("cannot write in {}", self.cache.display()))?;
        self.write_names(&names)?;
        Ok(path)
    }

    /// Returns the hub id, or the path, that a short name stands for.
    ///
    /// # Errors
    /// If the file of names cannot be used.
    pub fn id_of(&self, name: &str) -> anyhow::Result<Option<String>> {
        Ok(self.names()?.remove(name))
    }

    /// Checks that a model can be pulled by this hub id or short name.
    ///
    /// # Errors
    /// If it is neither.
    pub fn check_id(&self, id: &str) -> anyhow::Result<()> {
        self.parse(id).map(drop)
    }

    /// Parses a hub id, or that of a short name.
    fn parse(&self, id: &str) -> anyhow::Result<HubId> {
        let known = self.id_of(id)?;
        if known.as_deref().is_some_and(is_elsewhere) {
            bail!("{id} is the name of a model elsewhere on disk, which cannot be pulled");
        }
        let id = known.as_deref().unwrap_or(id);
        HubId::parse(id).with_context(|| {
            format!("{id} is no hub id: expected org/name, org/name:QUANT or org/name/file.gguf")
        })
    }

    /// Downloads what the store lacks of a model, and gives it a short name. Returns its id.
    ///
    /// # Errors
    /// If the id or the name is invalid, or the model cannot be downloaded.
    pub fn pull(
        &self,
        id: &str,
        revision: &str,
        name: Option<&str>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<String> {
        let parsed = self.parse(id)?;
        if let Some(name) = name {
            check_name(name)?;
        }
        let files = hub::fetch(&parsed, revision, progress)?;
        let id = match &parsed.wanted {
            Wanted::Any => parsed.repo.clone(),
            _ => {
                let file = files.iter().map(|(name, _)| name).find(|name| is_weights(name));
                file.map_or(parsed.repo.clone(), |file| format!("{}/{file}", parsed.repo))
            }
        };
        if let Some(name) = name {
            let mut names = self.names()?;
            names.insert(name.into(), id.clone());
            self.write_names(&names)?;
        }
        Ok(id)
    }

    /// Deletes a model, which an id or a short name names, with all its short names. Of a model elsewhere on
    /// disk, only the names are removed.
    ///
    /// # Errors
    /// If the store has no such model, or a file cannot be deleted.
    pub fn remove(&self, name: &str) -> anyhow::Result<Removed> {
        let models = self.list()?;
        let named = |model: &&StoredModel| model.is(name) || model.names.iter().any(|n| n == name);
        let Some(model) = models.iter().find(named) else {
            bail!("the store {} has no model {name}", self.cache.display());
        };
        let forget = || {
            let mut names = self.names()?;
            names.retain(|_, id| !model.is(id));
            self.write_names(&names)
        };
        if is_elsewhere(&model.id) {
            forget()?;
            return Ok(Removed::Names(model.path.clone()));
        }
        let repo: Vec<&str> = model.id.splitn(3, '/').collect();
        ensure!(repo.len() >= 2, "{name} is no model of the hub: delete {}", model.path.display());
        let repo = repo[..2].join("/");
        let siblings = models
            .iter()
            .filter(|other| other.id != model.id && other.id.starts_with(&format!("{repo}/")));
        let repository = Repository::new(&self.cache, &repo);
        match siblings.count() {
            0 => repository.remove(),
            _ => repository.remove_file(&model.path),
        }
        .with_context(|| format!("cannot delete {}", model.path.display()))?;
        forget()?;
        Ok(Removed::Files(model.bytes))
    }

    /// Reads the short names and the ids that they stand for.
    fn names(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let path = self.cache.join(NAMES);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is not a list of names", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes the short names, so that other programs see the old file or the new one.
    fn write_names(&self, names: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let path = self.cache.join(NAMES);
        if names.is_empty() && !path.exists() {
            return Ok(());
        }
        let draft = self.cache.join(format!("{NAMES}.{}", std::process::id()));
        let text = serde_json::to_string_pretty(names)?;
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns true if a short name stands for a path, and not for a hub id.
pub(super) fn is_elsewhere(id: &str) -> bool {
    Path::new(id).is_absolute()
}

/// Returns the model that a path names: a file, or a folder with one.
fn model_at(path: &Path) -> Option<StoredModel> {
    let id = path.to_str()?;
    if path.is_dir() {
        let mut models = of_files(id, path, &files_in(path));
        let only = models.pop().filter(|model| models.is_empty() && model.path == path);
        return only.map(|model| StoredModel { file: None, ..model });
    }
    of_file(id, path)
}

/// Checks a short name: it must not look like a path or a hub id.
fn check_name(name: &str) -> anyhow::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let fits = (1..=LONGEST_NAME).contains(&name.len());
    let good = fits && name.chars().all(plain) && name.starts_with(|c: char| c.is_alphanumeric());
    ensure!(good, "{name:?} is not a name: expected letters, digits, and - _ . : between them");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, "1234").expect("written");
    }

    fn ids(folder: &Path) -> Vec<String> {
        in_folder(folder).expect("read").into_iter().map(|model| model.id).collect()
    }

    /// Writes a repository as the hub's clients do.
    fn repository(cache: &Path, repo: &str, files: &[&str]) {
        let commit = "0a".repeat(20);
        let folder = cache.join(format!("models--{}", repo.replace('/', "--")));
        for file in files {
            write(folder.join("snapshots").join(&commit).join(file));
        }
        write(folder.join("refs/main"));
        fs::write(folder.join("refs/main"), commit).expect("written");
    }

    #[test]
    fn a_folder_has_files_folders_and_repositories() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["a.wf.safetensors", "b.gguf", "notes.txt", ".hidden.gguf", "c/config.json"] {
            write(at(name));
        }
        for name in ["c/model.safetensors", "d/x.gguf", "d/y.gguf", "empty/readme.md"] {
            write(at(name));
        }
        repository(folder.path(), "org/one", &["config.json", "model.safetensors"]);
        repository(folder.path(), "org/two", &["m-Q4.gguf", "m-Q8.gguf"]);
        let want = [
            "a",
            "b",
            "c",
            "d/x.gguf",
            "d/y.gguf",
            "org/one",
            "org/two/m-Q4.gguf",
            "org/two/m-Q8.gguf",
        ];
        assert_eq!(ids(folder.path()), want);
        assert_eq!(in_folder(folder.path()).expect("read")[2].bytes, 8, "all files of a model");
    }

    #[test]
    fn removing_keeps_the_other_models_of_a_repository() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store { cache: folder.path().into() };
        repository(folder.path(), "org/two", &["m-Q4.gguf", "m-Q8.gguf"]);
        let names = [("small".to_string(), "org/two/m-Q4.gguf".to_string())];
        store.write_names(&names.into()).expect("written");
        assert_eq!(store.list().expect("read")[0].names, ["small"]);
        assert_eq!(store.remove("small").expect("removed"), Removed::Files(4));
        assert_eq!(ids(folder.path()), ["org/two"], "the only file needs no name");
        assert_eq!(store.id_of("small").expect("read"), None);
        assert_eq!(store.remove("org/two/m-Q8.gguf").expect("removed"), Removed::Files(4));
        assert!(!folder.path().join("models--org--two").exists());
        let error = store.remove("small").expect_err("it is gone").to_string();
        assert!(error.contains("has no model small"), "{error}");
    }

    #[test]
    fn files_elsewhere_get_names_and_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().canonicalize().expect("there").join(name);
        let store = Store { cache: at("cache") };
        for name in ["x.gguf", "notes.txt", "one/model.safetensors", "one/config.json"] {
            write(at(name));
        }
        for name in ["two/a.gguf", "two/b.gguf"] {
            write(at(name));
        }
        store.add(&at("x.gguf"), "x").expect("a file");
        store.add(&at("one"), "one").expect("a folder");
        store.add(&at("one"), "uno").expect("another name");
        let listed = store.list().expect("read");
        let named: Vec<_> =
            listed.iter().map(|m| (m.path.clone(), m.names.join(" "), m.bytes)).collect();
        assert_eq!(named, [(at("one"), "one uno".into(), 8), (at("x.gguf"), "x".into(), 4)]);
        assert_eq!(store.id_of("x").expect("read").as_deref(), at("x.gguf").to_str());
        for wrong in ["notes.txt", "two", "nothing"] {
            let error = store.add(&at(wrong), "y").expect_err(wrong).to_string();
            assert!(error.contains(wrong), "{error}");
        }
        store.add(&at("x.gguf"), "a/b").expect_err("no name");
        assert_eq!(store.remove("uno").expect("removed"), Removed::Names(at("one")));
        assert_eq!(store.id_of("one").expect("read"), None, "all names of a model");
        assert!(at("one/model.safetensors").exists());
        fs::remove_file(at("x.gguf")).expect("deleted");
        assert_eq!(store.list().expect("read")[0].names, ["x"], "what is gone is listed");
        assert_eq!(store.remove("x").expect("removed"), Removed::Names(at("x.gguf")));
    }

    #[test]
    fn names() {
        for name in ["a", "bitnet-2b", "qwen:7b", "x.1_y"] {
            check_name(name).expect(name);
        }
        for name in ["", "-x", "a/b", "../a", "a b", "a\n", &"a".repeat(200)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
