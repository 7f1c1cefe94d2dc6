//! Downloads models from the Hugging Face hub into the cache that all its clients share.

pub(super) mod cache;
mod client;
mod download;
mod error;
mod id;
mod names;
mod place;

pub use id::HubId;
pub(super) use place::Place;

use super::Progress;
use super::model_files::select;
use anyhow::{Context, bail};
use cache::Repository;
use client::{Client, Listing};
use download::Download;
use error::Failure;
use std::path::PathBuf;

/// Returns the files of a model, and downloads those that the cache lacks.
pub fn fetch(
    id: &HubId,
    revision: &str,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<(String, PathBuf)>> {
    if !names::is_path(revision) {
        bail!("{revision:?} is no revision of {}: name a branch, tag or commit", id.repo);
    }
    let place = Place::from_env();
    let repository = Repository::new(&place.cache, &id.repo);
    if place.offline {
        return cached(id, revision, &place, &repository, "HF_HUB_OFFLINE is set");
    }
    let wrong = |failure: Failure| anyhow::anyhow!(failure.message(id, revision, &place));
    let client = Client::new(&place).map_err(wrong)?;
    let Listing { commit, files } = match client.list(&id.repo, revision) {
        Ok(listing) => listing,
        Err(failure) => match failure.why_offline(&place) {
            Some(why) => return cached(id, revision, &place, &repository, &why),
            None => return Err(wrong(failure)),
        },
    };
    let picked = select(&files, &id.wanted).with_context(|| format!("{} on the hub", id.repo))?;
    if let Some(odd) = picked.iter().find(|n| !names::is_path(n)) {
        bail!("{} on the hub has a file with the odd name {odd:?}", id.repo);
    }
    let known = repository.commit(revision).is_some();
    let refer = || repository.refer(revision, &commit).map_err(|e| wrong(e.into()));
    if !known {
        refer()?; // so that a partial download can be named
    }
    let mut get = |name: String| {
        let here = repository.snapshot(&commit).join(&name);
        if here.exists() {
            return Ok((name, here));
        }
        let (client, repository) = (&client, &repository);
        let file = Download { client, repository, repo: &id.repo, commit: &commit, name: &name };
        let path = file.run(progress);
        let path = path.map_err(|e| wrong(e).context(format!("cannot download {name}")))?;
        Ok((name, path))
    };
    let files = picked.into_iter().map(&mut get).collect::<anyhow::Result<_>>()?;
    refer()?;
    Ok(files)
}

/// Returns the files from the cache, or an error that says which files to put where.
fn cached(
    id: &HubId,
    revision: &str,
    place: &Place,
    repository: &Repository,
    why: &str,
) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let snapshot = repository.commit(revision).map(|commit| repository.snapshot(&commit));
    let names = snapshot.as_deref().map(cache::names_below).unwrap_or_default();
    let (Some(snapshot), Ok(picked)) = (snapshot, select(&names, &id.wanted)) else {
        bail!(error::offline(id, place, why));
    };
    if let Some(missing) = cache::missing_shards(&snapshot, &picked) {
        bail!(error::incomplete(id, &snapshot, &missing, why));
    }
    Ok(picked.into_iter().map(|n| (n.clone(), snapshot.join(n))).collect())
}
