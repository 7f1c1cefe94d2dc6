// The logits after each of some tokens, as llama.cpp computes them.
//
//   logits MODEL.gguf TOKEN,TOKEN,… > FILE        f32 [tokens, vocab], as this machine stores it

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

static void fail(const char * what) {
    fprintf(stderr, "logits: %s\n", what);
    exit(1);
}

static std::vector<llama_token> parse(const std::string & list) {
    std::vector<llama_token> tokens;
    std::istringstream ids(list);
    for (std::string id; std::getline(ids, id, ',');) {
        tokens.push_back(std::stoi(id));
    }
    return tokens;
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fail("usage: logits MODEL.gguf TOKEN,TOKEN,…");
    }
    const std::vector<llama_token> tokens = parse(argv[2]);
    const int count = tokens.size();
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) {
        fail("cannot load the model");
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = count;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) {
        fail("cannot make a context");
    }
    llama_batch batch = llama_batch_init(count, 0, 1);
    for (int i = 0; i < count; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = true;
    }
    batch.n_tokens = count;
    if (llama_decode(context, batch) != 0) {
        fail("cannot decode the tokens");
    }
    const size_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < count; i++) {
        if (fwrite(llama_get_logits_ith(context, i), sizeof(float), vocab, stdout) != vocab) {
            fail("cannot write");
        }
    }
    // Nothing is freed: the program ends, and the two llama.cpps name these functions differently.
}
