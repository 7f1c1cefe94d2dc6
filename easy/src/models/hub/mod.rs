//! Downloads models from the Hugging Face hub into the cache that all its clients share.

mod error;
mod id;
mod place;

pub use id::HubId;

use super::Progress;
use super::model_files::select;
use anyhow::{Context, bail};
use error::Failure;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{CacheRepo, Repo, RepoType};
use place::Place;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of times that an interrupted download is resumed.
const RESUMES: u32 = 4;

/// Returns the files of a model, and downloads those that the cache lacks.
pub fn fetch(
    id: &HubId,
    revision: &str,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let place = Place::from_env();
    let repo = Repo::with_revision(id.repo.clone(), RepoType::Model, revision.into());
    let cache = place.cache().repo(repo.clone());
    if place.offline {
        return cached(id, revision, &place, &cache, "HF_HUB_OFFLINE is set");
    }
    let api = client(&place).context("cannot start the hub client")?;
    let info = match api.repo(repo.clone()).info() {
        Ok(info) => info,
        Err(e) => match Failure::of(&e) {
            Failure::Unreachable(why) => return cached(id, revision, &place, &cache, &why),
            failure => bail!(failure.message(id, revision, &place)),
        },
    };
    let names: Vec<String> = info.siblings.into_iter().map(|s| s.rfilename).collect();
    let picked = select(&names, &id.wanted).with_context(|| format!("{} on the hub", id.repo))?;
    if let Some(odd) = picked.iter().find(|n| !is_plain(n)) {
        bail!("{} on the hub has a file with the odd name {odd:?}", id.repo);
    }
    let snapshot = cache.pointer_path(&info.sha);
    let mut get = |name: String| {
        let here = snapshot.join(&name);
        if here.exists() {
            return Ok((name, here));
        }
        let path = download(&api, &repo, &cache, &name, progress).map_err(|e| {
            let message = Failure::of(&e).message(id, revision, &place);
            anyhow::anyhow!("cannot download {name}: {message}")
        })?;
        Ok((name, path))
    };
    picked.into_iter().map(&mut get).collect()
}

/// One attempt to download a file, as the hub client reports it.
struct Attempt<'a> {
    name: &'a str,
    progress: &'a mut dyn Progress,
}

impl hf_hub::api::Progress for Attempt<'_> {
    fn init(&mut self, size: usize, _name: &str) {
        self.progress.download_started(self.name, size as u64);
    }

    fn update(&mut self, size: usize) {
        self.progress.downloaded(size as u64);
    }

    fn finish(&mut self) {
        self.progress.download_finished();
    }
}

fn client(place: &Place) -> Result<Api, ApiError> {
    ApiBuilder::from_cache(place.cache())
        .with_endpoint(place.endpoint.clone())
        .with_token(place.token.clone())
        .with_user_agent("wf-run", env!("CARGO_PKG_VERSION"))
        .build()
}

/// Downloads one file, resuming an earlier attempt of this run or another.
fn download(
    api: &Api,
    repo: &Repo,
    cache: &CacheRepo,
    name: &str,
    progress: &mut dyn Progress,
) -> Result<PathBuf, ApiError> {
    let mut failures = 0;
    loop {
        match attempt(api, repo, cache, name, progress) {
            Err(e) if failures < RESUMES && Failure::of(&e).is_passing() => {
                progress.download_interrupted(name, &e.to_string());
                std::thread::sleep(Duration::from_millis(250 << failures));
                failures += 1;
            }
            done => return done,
        }
    }
}

fn attempt(
    api: &Api,
    repo: &Repo,
    cache: &CacheRepo,
    name: &str,
    progress: &mut dyn Progress,
) -> Result<PathBuf, ApiError> {
    // A part as long as the file (or longer) cannot be resumed: the server has no bytes after it.
    let api_repo = api.repo(repo.clone());
    let metadata = api.metadata(&api_repo.url(name))?;
    let part = cache.blob_path(metadata.etag()).with_extension("part");
    let size = metadata.size() as u64;
    if part.metadata().is_ok_and(|m| m.len() >= size) {
        std::fs::remove_file(&part)?;
    }
    let path = api_repo.download_with_progress(name, Attempt { name, progress })?;
    let found = path.metadata()?.len();
    if found != size {
        // A server that ignores Range sends the whole file after the part.
        std::fs::remove_file(path.canonicalize()?)?;
        std::fs::remove_file(&path)?;
        let what = format!("received {found} bytes instead of {size}");
        return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, what).into());
    }
    Ok(path)
}

/// Returns the files from the cache, or an error that says which files to put where.
fn cached(
    id: &HubId,
    revision: &str,
    place: &Place,
    cache: &CacheRepo,
    why: &str,
) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let commit = place.commit(cache, &id.repo, revision);
    let snapshot = commit.map(|c| cache.pointer_path(&c));
    let names = snapshot.as_deref().map(place::names_below).unwrap_or_default();
    let (Some(snapshot), Ok(picked)) = (snapshot, select(&names, &id.wanted)) else {
        bail!(error::offline(id, place, why));
    };
    if let Some(missing) = place::missing_shards(&snapshot, &picked) {
        bail!(error::incomplete(id, &snapshot, &missing, why));
    }
    Ok(picked.into_iter().map(|n| (n.clone(), snapshot.join(n))).collect())
}

/// Returns true for a relative path without `..` and the like.
fn is_plain(name: &str) -> bool {
    Path::new(name).components().all(|c| matches!(c, std::path::Component::Normal(_)))
}
