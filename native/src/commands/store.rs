//! `wf-run pull`, `add`, `list`, `rm`, `ps` and `run`: the local store of models, and those in a server's memory.

use super::Cli;
use anyhow::Context;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use wf_run_cli::args::HubArgs;
use wf_run_cli::client::ServerArgs;
use wf_run_cli::config::ConfigArgs;
use wf_run_cli::progress::Progress;
use wf_run_cli::result_format::ResultFormat;
use wf_run_cli::{human, out, suggest};
use wrinklefree_easy::models::store::{Removed, Store, StoredModel};

/// Download a model
///
/// Downloads what the local store lacks of a model of the hub. The store is the hub's cache, which other
/// programs share, and a list of short names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run pull microsoft/bitnet-b1.58-2B-4T
  wf-run pull org/name:Q2_0 --name small")]
pub struct PullArgs {
    /// Hub id: org/name, org/name:QUANT or org/name/file.gguf
    id: String,
    /// Short name for it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    output: ResultFormat,
}

/// Give a model on disk a short name
///
/// The files stay where they are. `-m` takes the name in every command, and `serve --models store` serves
/// the model.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run add ./my-model.gguf --name mine
  wf-run run mine \"Hello!\"")]
pub struct AddArgs {
    /// File, or folder with one model
    path: PathBuf,
    /// Short name for it
    #[arg(long, value_name = "NAME")]
    name: String,
    #[command(flatten)]
    output: ResultFormat,
}

/// List the models of the local store
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    output: ResultFormat,
}

/// Delete models from the local store
///
/// Deletes the files, which other programs that use the hub's cache share, and the short names. Files that
/// `wf-run add` has named stay.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// Hub ids or short names
    #[arg(required = true)]
    models: Vec<String>,
    #[command(flatten)]
    output: ResultFormat,
}

/// List the models in a server's memory
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run ps
  wf-run ps localhost:8080 --api-key KEY")]
pub struct PsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// API key [default: the first that is set]
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// List all models of the server
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    _config: ConfigArgs,
    #[command(flatten)]
    output: ResultFormat,
}

/// Talk with a model of the store, or answer a prompt
///
/// Downloads the model first if the store lacks it. With a prompt this is `wf-run generate`, else
/// `wf-run chat`; their options may follow.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run run small
  wf-run run small \"Why is the sky blue?\" --temperature 0.7")]
pub struct RunArgs {
    /// Short name, hub id, file or folder
    model: OsString,
    /// Prompt, and options of `generate` or `chat`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROMPT")]
    rest: Vec<OsString>,
}

/// Runs `pull`.
pub fn pull(args: &PullArgs) -> anyhow::Result<()> {
    let store = Store::from_env();
    let (name, progress) = (args.name.as_deref(), &mut Progress::default());
    let id = store.pull(&args.id, &args.hub.revision, name, progress)?;
    let models = store.list()?;
    let bytes = models.iter().find(|model| model.id == id).map_or(0, |model| model.bytes);
    if args.output.is_json() {
        return out::json(&json!({"id": id, "name": name, "bytes": bytes}));
    }
    let named = name.map(|name| format!(" as {name}")).unwrap_or_default();
    out::print(&format!("{id}{named}: {}\n", human::bytes(bytes)))
}

/// Runs `add`.
pub fn add(args: &AddArgs) -> anyhow::Result<()> {
    let path = Store::from_env().add(&args.path, &args.name)?;
    if args.output.is_json() {
        return out::json(&json!({"name": args.name, "path": path.to_string_lossy()}));
    }
    out::print(&format!("{} is {}\n", args.name, path.display()))
}

/// Runs `list`.
pub fn list(args: &ListArgs) -> anyhow::Result<()> {
    let store = Store::from_env();
    let models = store.list()?;
    if args.output.is_json() {
        return out::json(&models.iter().map(described).collect::<Vec<Value>>());
    }
    if models.is_empty() {
        out::note(format_args!("{} has no models: wf-run pull ID", store.folder().display()));
        return Ok(());
    }
    let heading = ["NAME", "ID", "SIZE", "CHANGED"].map(String::from).to_vec();
    let row = |model: &StoredModel| {
        let changed = model.modified.map(|time| format!("{} ago", human::age(time)));
        let names = if model.names.is_empty() { "-".into() } else { model.names.join(", ") };
        vec![names, model.id.clone(), human::bytes(model.bytes), changed.unwrap_or_default()]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(models.iter().map(row)).collect();
    out::print(&human::table(&rows))
}

/// Describes a model as JSON.
fn described(model: &StoredModel) -> Value {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().map(|t| t.as_secs());
    json!({
        "id": model.id,
        "names": model.names,
        "path": model.path.to_string_lossy(),
        "bytes": model.bytes,
        "modified": model.modified.and_then(seconds),
    })
}

/// Runs `rm`.
pub fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let store = Store::from_env();
    let remove = |model: &String| match store.remove(model) {
        Ok(removed) => Ok((model.clone(), removed)),
        // The name of what is not there may be that of what is, mistyped.
        Err(error) => Err(suggest::explained(error, model)),
    };
    if !args.output.is_json() {
        return args.models.iter().map(remove).try_for_each(|removed| match removed? {
            (model, Removed::Files(bytes)) => {
                out::print(&format!("deleted {model}: {}\n", human::bytes(bytes)))
            }
            (model, Removed::Names(path)) => {
                out::print(&format!("forgot {model}: {} stays\n", path.display()))
            }
        });
    }
    let mut failed = None;
    let removed =
        args.models.iter().map(remove).map_while(|r| r.map_err(|e| failed = Some(e)).ok());
    let removed = removed.map(|(model, removed)| match removed {
        Removed::Files(bytes) => json!({"model": model, "bytes": bytes}),
        Removed::Names(path) => json!({"model": model, "stays": path.to_string_lossy()}),
    });
    out::json(&removed.collect::<Vec<Value>>())?;
    failed.map_or(Ok(()), Err)
}

/// Runs `ps`.
pub fn ps(args: &PsArgs) -> anyhow::Result<()> {
    let key = args.api_key.first().map(String::as_str);
    let text = args.server.client()?.get("/v1/models", key)?;
    let body: Value = serde_json::from_str(&text).context("the server's answer is not JSON")?;
    let models = body["data"].as_array().context("the server's answer has no list of models")?;
    let state = |model: &Value| model["status"]["value"].as_str().unwrap_or("loaded").to_string();
    // A model has a card for each of its names.
    let (first, others): (Vec<&Value>, Vec<&Value>) =
        models.iter().partition(|model| model["root"].is_null() || model["root"] == model["id"]);
    let names = |model: &Value| {
        let named = others.iter().filter(|other| other["root"] == model["id"]);
        named.filter_map(|other| other["id"].as_str()).collect::<Vec<_>>()
    };
    let shown = first.into_iter().filter(|model| args.all || state(model) != "unloaded");
    if args.output.is_json() {
        let named = |model: &Value| {
            let mut card = model.clone();
            card["names"] = json!(names(model));
            card
        };
        return out::json(&shown.map(named).collect::<Vec<Value>>());
    }
    let heading = ["NAME", "ID", "STATE", "CONTEXT", "SIZE"].map(String::from).to_vec();
    let row = |model: &Value| {
        let context = model["max_model_len"].as_u64().map_or("-".into(), |n| n.to_string());
        let size = model["size"].as_u64().or(model["meta"]["size"].as_u64());
        let size = size.map_or("-".into(), human::bytes);
        let (names, id) = (names(model), model["id"].as_str().unwrap_or("?").into());
        let names = if names.is_empty() { "-".into() } else { names.join(", ") };
        vec![names, id, state(model), context, size]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(shown.map(row)).collect();
    out::print(&human::table(&rows))
}

/// Runs `run`.
pub fn run(args: RunArgs) -> anyhow::Result<()> {
    let prompt = args.rest.first().is_some_and(|first| !first.to_string_lossy().starts_with('-'));
    let command = if prompt { "generate" } else { "chat" };
    let program = ["wf-run", command, "-m"].map(OsString::from).into_iter();
    Cli::configured(program.chain([args.model]).chain(args.rest).collect())?.run()
}
