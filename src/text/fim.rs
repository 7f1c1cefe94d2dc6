//! Tokens around a hole between two texts ("fill in the middle", arXiv 2207.14255).

use super::Tokenizer;

/// Names of the tokens before prefix, suffix and middle, by model family.
const AROUND: [[&str; 3]; 6] = [
    // Qwen2.5-Coder and Qwen3.
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    // StarCoder, Granite and SmolLM.
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    // DeepSeek-Coder: begin, hole, end.
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    // Code Llama.
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
    // GLM.
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
];
/// Names of the token before the name of a project.
const PROJECT: [&str; 3] = ["<|repo_name|>", "<repo_name>", "<reponame>"];
/// Names of the token before the name of a file.
const FILE: [&str; 3] = ["<|file_sep|>", "<file_sep>", "<filename>"];
/// Names of tokens that end the text in a hole.
const ENDS: [&str; 6] =
    ["<|endoftext|>", "<|fim_pad|>", "<fim_pad>", "<|cursor|>", "▁<EOT>", "<EOT>"];

/// Ids of the tokens around the parts of a prompt whose hole a model fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FimTokens {
    /// Tokens before prefix, suffix and middle, in this order.
    pub around: [u32; 3],
    /// Token before the name of a project, if the tokenizer has one.
    pub project: Option<u32>,
    /// Token before the name of a file, if the tokenizer has one.
    pub file: Option<u32>,
    /// Tokens that end the text in the hole.
    pub ends: Vec<u32>,
}

impl FimTokens {
    /// Finds the tokens by their known names. Returns `None` for a tokenizer without them.
    #[must_use]
    pub fn find(tokenizer: &Tokenizer) -> Option<Self> {
        let id = |name: &&str| tokenizer.id(name);
        let all = |names: &[&str; 3]| {
            let ids = names.each_ref().map(id);
            Some([ids[0]?, ids[1]?, ids[2]?])
        };
        let around = AROUND.iter().find_map(all)?;
        let (project, file) = (PROJECT.iter().find_map(id), FILE.iter().find_map(id));
        let ends = ENDS.iter().filter_map(id).chain(project).chain(file).collect();
        Some(Self { around, project, file, ends })
    }

    /// Returns the prompt for a hole: the tokens of `prefix` and `suffix`, each after its token, and the
    /// token before the middle. `begin` are tokens before all others.
    #[must_use]
    pub fn prompt(&self, mut begin: Vec<u32>, prefix: &[u32], suffix: &[u32]) -> Vec<u32> {
        let [before_prefix, before_suffix, before_middle] = self.around;
        begin.push(before_prefix);
        begin.extend(prefix);
        begin.push(before_suffix);
        begin.extend(suffix);
        begin.push(before_middle);
        begin
    }
}
