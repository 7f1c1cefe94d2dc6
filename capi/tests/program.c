/* Uses every function of wrinklefree.h with the model inside the library. Run by tests/c_program.rs. */
#include "wrinklefree.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
#include <malloc.h>
#define COUNTED
#endif

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "line %d: %s is false; last error: %s\n", __LINE__, #condition, \
                    wf_last_error());                                                       \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

static const char *const PROMPT = "Once upon a time";

/* Polls a request to its end. Returns the number of tokens, and the text in `text`. */
static size_t finish(wf_request *request, char *text, size_t capacity, wf_event *end) {
    size_t tokens = 0, length = 0;
    for (;;) {
        CHECK(wf_poll(request, -1, end) == WF_STATUS_OK);
        CHECK(end->text_length == strlen(end->text) && length + end->text_length < capacity);
        memcpy(text + length, end->text, end->text_length + 1);
        length += end->text_length;
        if (end->kind == WF_EVENT_KIND_END) break;
        tokens += 1;
    }
    wf_event none;
    CHECK(wf_poll(request, -1, &none) == WF_STATUS_FINISHED);
    return tokens;
}

/* Snapshots come between the tokens; the last one equals the text. */
static void snapshots(wf_engine *engine) {
    char text[2048], last[2048] = "";
    size_t length = 0, masked = 0;
    wf_event event;
    wf_request *request;
    const char *options = "{\"max_tokens\": 40, \"temperature\": 0, \"diffusing\": true, "
                          "\"decode_mode\": \"iterative\"}";
    CHECK(wf_submit(engine, PROMPT, options, &request) == WF_STATUS_OK);
    do {
        CHECK(wf_poll(request, -1, &event) == WF_STATUS_OK);
        if (event.kind == WF_EVENT_KIND_SNAPSHOT) {
            CHECK(event.text_length < sizeof last);
            memcpy(last, event.text, event.text_length + 1);
            masked += strstr(last, "\xe2\x96\x91") != NULL;
        } else {
            CHECK(length + event.text_length < sizeof text);
            memcpy(text + length, event.text, event.text_length + 1);
            length += event.text_length;
        }
    } while (event.kind != WF_EVENT_KIND_END);
    CHECK(masked > 0 && strcmp(text, last) == 0);
    wf_request_free(request);
}

static void stories(wf_engine *engine) {
    char first[2048], second[2048];
    wf_event end;
    wf_request *a, *b;
    const char *options = "{\"max_tokens\": 40, \"temperature\": 0, \"logprobs\": 2}";
    CHECK(wf_submit(engine, PROMPT, options, &a) == WF_STATUS_OK);

    /* The same as token ids, at the same time. */
    size_t count = 0, length = 0;
    CHECK(wf_tokenize(engine, PROMPT, NULL, 0, &count) == WF_STATUS_BUFFER_TOO_SMALL && count > 0);
    uint32_t *tokens = malloc(count * sizeof *tokens);
    CHECK(wf_tokenize(engine, PROMPT, tokens, count, &count) == WF_STATUS_OK);
    CHECK(wf_submit_tokens(engine, tokens, count, options, &b) == WF_STATUS_OK);

    wf_event event;
    CHECK(wf_poll(a, -1, &event) == WF_STATUS_OK && event.kind == WF_EVENT_KIND_TOKEN);
    CHECK(event.top_count == 2 && event.top[0].token == event.token.token);
    CHECK(event.token.logprob < 0 && event.top[1].logprob <= event.top[0].logprob);

    /* Own sampling takes the same first token. */
    size_t vocab = wf_vocab_size(engine), best = 0;
    float *logits = malloc(vocab * sizeof *logits);
    CHECK(wf_logits(engine, tokens, count, logits, vocab - 1) == WF_STATUS_BUFFER_TOO_SMALL);
    CHECK(wf_logits(engine, tokens, count, logits, vocab) == WF_STATUS_OK);
    for (size_t i = 1; i < vocab; i++) best = logits[i] > logits[best] ? i : best;
    CHECK(best == event.token.token);

    strcpy(first, event.text);
    CHECK(finish(a, first + strlen(first), 1024, &end) == 39);
    CHECK(end.reason == WF_FINISH_REASON_LENGTH && end.prompt_tokens == count && end.passes > 0);
    CHECK(finish(b, second, sizeof second, &end) == 40 && strcmp(first, second) == 0);
    printf("%s%s\n", PROMPT, first);

    char text[64];
    CHECK(wf_detokenize(engine, tokens, count, text, 3, &length) == WF_STATUS_BUFFER_TOO_SMALL);
    CHECK(wf_detokenize(engine, tokens, count, text, sizeof text, &length) == WF_STATUS_OK);
    CHECK(length == strlen(text) && strstr(text, PROMPT) != NULL);
    free(logits);
    free(tokens);
    wf_request_free(a);
    wf_request_free(b);
}

static void chat_with_schema(wf_engine *engine) {
    char text[1024];
    wf_event end;
    wf_request *request;
    const char *messages = "[{\"role\": \"user\", \"content\": \"Hello!\"}]";
    const char *options = "{\"temperature\": 0, \"regex\": \"yes|no\"}";
    CHECK(wf_submit_chat(engine, messages, options, &request) == WF_STATUS_OK);
    finish(request, text, sizeof text, &end);
    CHECK(end.reason == WF_FINISH_REASON_STOP && (!strcmp(text, "yes") || !strcmp(text, "no")));
    wf_request_free(request);
}

static void *cancel(void *request) {
    wf_cancel(request);
    return NULL;
}

static void cancelling(wf_engine *engine) {
    char text[8192];
    wf_event event;
    wf_request *request;
    pthread_t thread;
    CHECK(wf_submit(engine, PROMPT, "{\"max_tokens\": 400}", &request) == WF_STATUS_OK);
    CHECK(wf_poll(request, -1, &event) == WF_STATUS_OK && isnan(event.token.logprob));
    CHECK(pthread_create(&thread, NULL, cancel, request) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(finish(request, text, sizeof text, &event) < 399);
    CHECK(event.reason == WF_FINISH_REASON_CANCELLED);
    wf_request_free(request);

    /* Freeing a request that runs cancels it. */
    CHECK(wf_submit(engine, PROMPT, "{\"max_tokens\": 400}", &request) == WF_STATUS_OK);
    wf_request_free(request);
}

static void embeddings(wf_engine *engine) {
    size_t size = wf_embedding_size(engine);
    float *vector = malloc(size * sizeof *vector), length = 0;
    CHECK(wf_embed(engine, PROMPT, WF_POOLING_LAST, vector, size) == WF_STATUS_OK);
    CHECK(wf_embed(engine, PROMPT, WF_POOLING_MEAN, vector, size) == WF_STATUS_OK);
    for (size_t i = 0; i < size; i++) length += vector[i] * vector[i];
    CHECK(fabsf(length - 1) < 1e-4f);
    CHECK(wf_embed(engine, PROMPT, 7, vector, size) == WF_STATUS_INVALID_ARGUMENT);
    free(vector);
}

/* Checks that a call was refused, and that the message names the culprit. */
static void refused(wf_status got, wf_status expected, const char *part) {
    if (got != expected || strstr(wf_last_error(), part) == NULL) {
        fprintf(stderr, "status %d, not %d, or no \"%s\": %s\n", got, expected, part, wf_last_error());
        exit(1);
    }
}

static void errors(wf_engine *engine) {
    wf_engine *none = engine;
    wf_request *request = NULL;
    wf_event event;
    uint32_t unknown = UINT32_MAX;
    float logit;
    refused(wf_open("no/such/file.gguf", NULL, &none), WF_STATUS_OPEN_FAILED, "no/such/file.gguf");
    CHECK(none == NULL);
    refused(wf_open(NULL, "{\"thread\": 1}", &none), WF_STATUS_INVALID_ARGUMENT,
            "options: there is no field `thread`, only threads, pinned, context, max_sequences, draft_model, draft_layout; "
            "wrinklefree.h lists all options");
    refused(wf_open(NULL, "{\"threads\": \"four\"}", &none), WF_STATUS_INVALID_ARGUMENT,
            "options: threads: expected a whole number from 1, not \"four\"");
    refused(wf_open(NULL, "{\"context\": 0}", &none), WF_STATUS_INVALID_ARGUMENT,
            "options: context: expected a whole number from 1, not 0");
    refused(wf_open(NULL, "{\"pinned\": 1}", &none), WF_STATUS_INVALID_ARGUMENT,
            "options: pinned: expected true or false, not 1");
    refused(wf_open(NULL, "nonsense", &none), WF_STATUS_INVALID_ARGUMENT,
            "options: nonsense is not a JSON object ({\"name\": value})");
    refused(wf_open(NULL, NULL, NULL), WF_STATUS_INVALID_ARGUMENT, "engine is NULL");
    refused(wf_submit(NULL, PROMPT, NULL, &request), WF_STATUS_INVALID_ARGUMENT, "engine");
    refused(wf_submit(engine, NULL, NULL, &request), WF_STATUS_INVALID_ARGUMENT, "prompt");
    refused(wf_submit(engine, PROMPT, NULL, NULL), WF_STATUS_INVALID_ARGUMENT, "request");
    refused(wf_submit(engine, "\xff", NULL, &request), WF_STATUS_INVALID_ARGUMENT, "prompt");
    refused(wf_submit(engine, PROMPT, "{\"top_q\": 1}", &request), WF_STATUS_INVALID_ARGUMENT,
            "options: there is no field `top_q`; wrinklefree.h lists all options");
    refused(wf_submit(engine, PROMPT, "{\"top_k\": 3, \"temperature\": \"hot\"}", &request),
            WF_STATUS_INVALID_ARGUMENT, "options: temperature: expected a number, not \"hot\"");
    refused(wf_submit(engine, PROMPT, "{\"decode_mode\": \"fast\"}", &request),
            WF_STATUS_INVALID_ARGUMENT, "options: decode_mode: expected one of auto, ar, greedy");
    refused(wf_submit(engine, PROMPT, "{\"top_p\": 2}", &request), WF_STATUS_INVALID_REQUEST, "top_p");
    refused(wf_submit(engine, PROMPT, "{\"max_tokens\": 0}", &request), WF_STATUS_INVALID_REQUEST,
            "max_tokens");
    refused(wf_submit(engine, PROMPT, "{\"regex\": \"(\"}", &request), WF_STATUS_INVALID_REQUEST,
            "grammar");
    refused(wf_submit(engine, PROMPT, "{\"regex\": \"a\", \"grammar\": \"b\"}", &request),
            WF_STATUS_INVALID_ARGUMENT, "exclude");
    refused(wf_submit_chat(engine, "{}", NULL, &request), WF_STATUS_INVALID_ARGUMENT,
            "messages: {} is not an array of objects");
    refused(wf_submit_chat(engine, "[{\"role\": 1}]", NULL, &request), WF_STATUS_INVALID_ARGUMENT,
            "messages[0]: role: expected a text, not 1");
    refused(wf_submit_chat(engine, "[{\"role\": \"user\"}]", NULL, &request),
            WF_STATUS_INVALID_ARGUMENT, "messages[0]: the field `content` is missing");
    refused(wf_submit_tokens(engine, &unknown, 1, NULL, &request), WF_STATUS_INVALID_REQUEST,
            "vocabulary");
    refused(wf_submit_tokens(engine, NULL, 1, NULL, &request), WF_STATUS_INVALID_ARGUMENT, "tokens");
    refused(wf_logits(engine, NULL, 0, &logit, 1), WF_STATUS_INVALID_REQUEST, "prompt is empty");
    CHECK(request == NULL);
    refused(wf_poll(NULL, 0, &event), WF_STATUS_INVALID_ARGUMENT, "request");
    wf_cancel(NULL);
    wf_request_free(NULL);
    wf_engine_free(NULL);
    CHECK(wf_name(NULL) == NULL && wf_warning(NULL, 0) == NULL && wf_context(NULL) == 0);
}

/* A request polls on after its engine was freed. */
static void engine_freed_first(void) {
    char text[1024];
    wf_event end;
    wf_engine *engine;
    wf_request *request;
    CHECK(wf_open(NULL, "{\"threads\": 1, \"context\": 128}", &engine) == WF_STATUS_OK);
    CHECK(wf_submit(engine, PROMPT, "{\"max_tokens\": 8}", &request) == WF_STATUS_OK);
    wf_engine_free(engine);
    CHECK(finish(request, text, sizeof text, &end) == 8);
    wf_request_free(request);
}

/* Bytes of the heap in use, where the C library counts them. */
static size_t heap(void) {
#ifdef COUNTED
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* Many requests on one engine leave nothing behind. */
static void many_requests(wf_engine *engine) {
    size_t first = 0;
    for (int i = 0; i < 400; i++) {
        char text[256];
        wf_event end;
        wf_request *request;
        const char *options = "{\"max_tokens\": 2, \"stop\": [\"never\"], \"logprobs\": 5}";
        CHECK(wf_submit(engine, PROMPT, options, &request) == WF_STATUS_OK);
        finish(request, text, sizeof text, &end);
        wf_request_free(request);
        CHECK(wf_submit(engine, PROMPT, "{\"top_p\": 2}", &request) != WF_STATUS_OK);
        first = i == 100 ? heap() : first;
    }
    printf("heap after 100 requests: %zu, after 400: %zu\n", first, heap());
    CHECK(heap() <= first + (8 << 10));
}

int main(void) {
#ifdef COUNTED
    /* One heap for all threads, which mallinfo2 counts. */
    mallopt(M_ARENA_MAX, 1);
#endif
    wf_engine *engine = NULL;
    CHECK(strlen(wf_version()) > 0 && strcmp(wf_last_error(), "") == 0);
    size_t first = 0, last = 0;
    for (int round = 0; round < 5; round++) {
        CHECK(wf_open(NULL, "{\"threads\": 1, \"context\": 512}", &engine) == WF_STATUS_OK);
        CHECK(strcmp(wf_name(engine), "default") == 0 && wf_warning(engine, 0) == NULL);
        CHECK(wf_context(engine) == 512);
        stories(engine);
        snapshots(engine);
        chat_with_schema(engine);
        cancelling(engine);
        embeddings(engine);
        errors(engine);
        wf_engine_free(engine);
        engine_freed_first();
        first = round == 0 ? heap() : first;
        last = heap();
    }
    /* Caches for the program's lifetime grow a little; an engine has megabytes. */
    printf("heap after 1 round: %zu, after 5: %zu\n", first, last);
    CHECK(last <= first + (1 << 20));
    CHECK(wf_open(NULL, "{\"threads\": 1, \"context\": 4096}", &engine) == WF_STATUS_OK);
    many_requests(engine);
    CHECK(strstr(wf_warning(engine, 0), "trained for") != NULL && wf_warning(engine, 1) == NULL);
    wf_engine_free(engine);
    return 0;
}
