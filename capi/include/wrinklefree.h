// C interface of the WrinkleFree runtime: ternary language models on CPUs.
//
// A program opens an engine, submits requests, and polls the events of each request. Options are JSON
// objects with the field names of the server and of the npm package. Errors are codes, with a message
// for each thread: wf_last_error.
//
// Ownership: wf_open and the wf_submit functions make handles. The caller frees each exactly once, with
// wf_engine_free and wf_request_free, in any order: a request keeps its engine running. Arguments are
// copied; the library keeps no pointer of the caller. The caller owns output buffers. Returned strings
// belong to the library; each function says how long they live.
//
// Threads: all functions may be called from any thread, and an engine from several at a time: their
// requests run in one batch. wf_poll holds a request while it waits, so one thread polls it; wf_cancel
// works from others meanwhile. Nothing may use a handle that is being freed. The engine's threads do not
// survive a fork: open engines after it.


#ifndef WRINKLEFREE_H
#define WRINKLEFREE_H

#include <stddef.h>
#include <stdint.h>

// Result of a call. Values from 3 on are errors, which wf_last_error explains.
typedef enum wf_status {
  // The call succeeded.
  WF_STATUS_OK = 0,
  // wf_poll: there was no event within the time.
  WF_STATUS_NO_EVENT = 1,
  // wf_poll: the last event was delivered before.
  WF_STATUS_FINISHED = 2,
  // A pointer is NULL that must not be, a text is not UTF-8, or JSON cannot be read.
  WF_STATUS_INVALID_ARGUMENT = 3,
  // The model could not be found, read or used, or the engine could not start.
  WF_STATUS_OPEN_FAILED = 4,
  // The request cannot run: for example the prompt is too long, or the grammar has an error.
  WF_STATUS_INVALID_REQUEST = 5,
  // The model lacks what the call needs: a chat template.
  WF_STATUS_UNSUPPORTED = 6,
  // The buffer is too small; the needed size was written.
  WF_STATUS_BUFFER_TOO_SMALL = 7,
  // The engine has stopped.
  WF_STATUS_STOPPED = 8,
  // A fault of the library. Please report it.
  WF_STATUS_INTERNAL = 9,
  // The model computed a number that is not finite: its weights are broken.
  WF_STATUS_MODEL_FAILED = 10,
} wf_status;

// The kind of an event.
typedef enum wf_event_kind {
  // A token is final.
  WF_EVENT_KIND_TOKEN = 0,
  // The output is complete; no event follows.
  WF_EVENT_KIND_END = 1,
  // With the option diffusing: text and reasoning are all of the output so far, and replace what the
  // event of this kind before it had. The last one comes before the end and equals the output.
  WF_EVENT_KIND_SNAPSHOT = 2,
} wf_event_kind;

// The reason why an output ended.
typedef enum wf_finish_reason {
  // It has not ended.
  WF_FINISH_REASON_NONE = 0,
  // An end-of-text token, or the grammar allows nothing more.
  WF_FINISH_REASON_STOP = 1,
  // A stop string.
  WF_FINISH_REASON_STOP_STRING = 2,
  // max_tokens is reached, or the context is full.
  WF_FINISH_REASON_LENGTH = 3,
  // wf_cancel was called.
  WF_FINISH_REASON_CANCELLED = 4,
  // As Stop or StopString, after calls of tools, whose results the model waits for.
  WF_FINISH_REASON_TOOL_CALLS = 5,
} wf_finish_reason;

// Pooling of hidden states to an embedding.
typedef enum wf_pooling {
  // The mean over all tokens.
  WF_POOLING_MEAN = 0,
  // The hidden state of the last token.
  WF_POOLING_LAST = 1,
} wf_pooling;

// A model that is ready to run, and the threads that compute. Opaque.
typedef struct wf_engine wf_engine;

// A running request. Opaque.
typedef struct wf_request wf_request;

// A part of a call of a tool. Its texts are UTF-8 and NUL-terminated; a NUL of the model's output
// becomes U+FFFD.
typedef struct wf_tool_call {
  // Number of the call in the output, from 0.
  size_t index;
  // Id of the call in its first part, else NULL.
  const char *id;
  // Name of the function in the first part, else NULL.
  const char *name;
  // More of the arguments, which are JSON.
  const char *arguments;
} wf_tool_call;

// A token and its log-probability.
typedef struct wf_logprob {
  // Id of the token.
  uint32_t token;
  // Natural logarithm of its probability under the model's own distribution.
  float logprob;
} wf_logprob;

// An event of a request. Its pointers live until the next wf_poll or wf_request_free of the request.
typedef struct wf_event {
  // The kind.
  enum wf_event_kind kind;
  // Text of the answer that can be shown now: UTF-8, NUL-terminated, perhaps empty. A NUL of the
  // model's output becomes U+FFFD.
  const char *text;
  // Bytes of the text, without the NUL.
  size_t text_length;
  // Reasoning before the answer that can be shown now, in the same form. Only conversations have any.
  const char *reasoning;
  // Bytes of the reasoning, without the NUL.
  size_t reasoning_length;
  // Parts of calls of tools. Only conversations with the option tools have any.
  const struct wf_tool_call *tool_calls;
  // Number of items in `tool_calls`.
  size_t tool_call_count;
  // Token: the id and its log-probability, which is NaN unless the option logprobs is set.
  struct wf_logprob token;
  // Token: the most likely tokens, best first, if the option logprobs asks for some.
  const struct wf_logprob *top;
  // Number of items in `top`.
  size_t top_count;
  // End: the reason.
  enum wf_finish_reason reason;
  // End: number of tokens in the prompt.
  size_t prompt_tokens;
  // End: number of prompt tokens that earlier requests had computed.
  size_t cached_tokens;
  // End: number of forward passes that the request took part in.
  size_t passes;
} wf_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library, for example "0.1.0".
const char *wf_version(void);

// Opens a model and starts an engine. Writes NULL to `engine` on errors.
//
// `model` is a file, a directory, or a hub id if the library was built with the feature `hub`; NULL
// opens the model inside the library. `options` is a JSON object or NULL: {"threads": 4, "context":
// 2048, "max_sequences": 4, "pinned": false, "draft_model": null, "draft_layout": null}. By default there
// is a thread for each core, the context is the trained one (at most 4096), and 4 sequences run at a
// time. "draft_model" names a drafter of the model, as `model` does a model: it drafts tokens, and the
// text stays the same. "draft_layout" is "dflash" or "dspark", instead of what the drafter's files state.
//
// Requirements:
// `model` and `options` are NULL or NUL-terminated strings.
enum wf_status wf_open(const char *model,
                       const char *options,
                       struct wf_engine **engine);

// Frees an engine; NULL does nothing. Its threads end when its last request is freed too.
//
// Requirements:
// `engine` comes from wf_open, was not freed before, and no other thread uses it.
void wf_engine_free(struct wf_engine *engine);

// Returns the name of the model. The string lives as long as the engine. NULL for NULL.
const char *wf_name(const struct wf_engine *engine);

// Returns a remark on the options, to print or log: for example a context longer than the trained one.
// NULL after the last one. The string lives as long as the engine.
const char *wf_warning(const struct wf_engine *engine,
                       size_t index);

// Returns the maximum number of tokens in a sequence, prompt and output together; 0 for NULL.
size_t wf_context(const struct wf_engine *engine);

// Returns the number of tokens in the vocabulary, which is the number of logits; 0 for NULL.
size_t wf_vocab_size(const struct wf_engine *engine);

// Returns the number of values in an embedding; 0 for NULL.
size_t wf_embedding_size(const struct wf_engine *engine);

// Writes the token ids of a text, with the special tokens that begin one, and their number to `count`.
// If `capacity` is too small, only `count` is written: call it with 0 to learn the size.
//
// Requirements:
// `text` is a NUL-terminated string, and `tokens` has room for `capacity` numbers.
enum wf_status wf_tokenize(const struct wf_engine *engine,
                           const char *text,
                           uint32_t *tokens,
                           size_t capacity,
                           size_t *count);

// Writes the text of token ids, NUL-terminated, and its bytes without the NUL to `length`. If
// `capacity` is too small for text and NUL, only `length` is written.
//
// Requirements:
// `tokens` has `count` numbers, and `text` has room for `capacity` bytes.
enum wf_status wf_detokenize(const struct wf_engine *engine,
                             const uint32_t *tokens,
                             size_t count,
                             char *text,
                             size_t capacity,
                             size_t *length);

// Writes the logits of the token that follows `tokens`, wf_vocab_size of them, for programs that sample
// themselves. The engine keeps what it computed: a call with one more token costs about one pass of
// one token.
//
// Requirements:
// `tokens` has `count` numbers, and `logits` has room for `capacity` numbers.
enum wf_status wf_logits(const struct wf_engine *engine,
                         const uint32_t *tokens,
                         size_t count,
                         float *logits,
                         size_t capacity);

// Writes the embedding of a text, wf_embedding_size values of length 1 together. `pooling` is a
// wf_pooling.
//
// Requirements:
// `text` is a NUL-terminated string, and `embedding` has room for `capacity` numbers.
enum wf_status wf_embed(const struct wf_engine *engine,
                        const char *text,
                        int pooling,
                        float *embedding,
                        size_t capacity);

// Returns the message of the last error on this thread, in UTF-8; empty if there was none. It says what
// happened, to what, and what to do. The string lives until the next error on this thread.
const char *wf_last_error(void);

// Continues a prompt, as it is. Writes NULL to `request` on errors.
//
// `options` is a JSON object or NULL. Its fields have the names of the server's and the npm package's:
// max_tokens (256), temperature, top_k, top_p, min_p, seed, repetition_penalty, frequency_penalty,
// presence_penalty, logit_bias (pairs of id and bias), stop (texts), logprobs (number of most likely
// tokens), suffix (text after the output, which fills the hole), one of json_schema, regex and grammar
// (Lark), best_effort (leaves out what no grammar can hold of a schema), and the decode settings, for
// example {"decode_mode": "verify"}. The library's own are context_shift (number of first tokens that stay
// when the context is full) and diffusing (events with the whole output so far after each pass, in which
// U+2591 stands for a token that block diffusion has not decided). An unknown field is an error.
//
// Requirements:
// `prompt` is a NUL-terminated string, and `options` is one or NULL.
enum wf_status wf_submit(const struct wf_engine *engine,
                         const char *prompt,
                         const char *options,
                         struct wf_request **request);

// Continues token ids. The rest is as for wf_submit.
//
// Requirements:
// `tokens` has `count` numbers, and `options` is a NUL-terminated string or NULL.
enum wf_status wf_submit_tokens(const struct wf_engine *engine,
                                const uint32_t *tokens,
                                size_t count,
                                const char *options,
                                struct wf_request **request);

// Answers a conversation with the model's chat template. `messages` is a JSON array:
// `[{"role": "user", "content": "Hello!"}]`. The options also have enable_thinking, thinking_budget
// (tokens), reasoning_effort, preserve_thinking, chat_template_kwargs, and in the form of OpenAI's API
// tools, tool_choice, parallel_tool_calls and documents. A message may have reasoning_content, tool_calls
// and tool_call_id. The rest is as for wf_submit.
//
// Requirements:
// `messages` is a NUL-terminated string, and `options` is one or NULL.
enum wf_status wf_submit_chat(const struct wf_engine *engine,
                              const char *messages,
                              const char *options,
                              struct wf_request **request);

// Waits for the next event of a request, at most `timeout_ms` milliseconds: 0 returns at once, a
// negative number waits as long as it takes. Writes `event` if the status is OK.
enum wf_status wf_poll(const struct wf_request *request,
                       int64_t timeout_ms,
                       struct wf_event *event);

// Cancels a request from any thread, before its next forward pass; NULL does nothing. Events that are
// there already and an end event follow.
void wf_cancel(const struct wf_request *request);

// Frees a request, and cancels it if it has not ended; NULL does nothing.
//
// Requirements:
// `request` comes from a submit function, was not freed before, and no other thread uses it.
void wf_request_free(struct wf_request *request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WRINKLEFREE_H */
