/* Multiplies rows by llama.cpp's functions several times, for a program that counts the instructions.
 *
 *     llama tq2_0|q2_0|q8_0 ROWS_AT_ONCE ROWS COLS BATCH TIMES
 */
#define GGML_COMMON_DECL_C
#include "ggml-common.h"
#include <stdlib.h>
#include <string.h>

typedef void dot(int, float *, size_t, const void *, size_t, const void *, size_t, int);
dot ggml_vec_dot_tq2_0_q8_K, ggml_vec_dot_q2_0_q8_0, ggml_vec_dot_q8_0_q8_0;

struct type {
    const char *name;
    dot *multiply;
    size_t weights, bytes, activations, activation_bytes;
};

static const struct type types[] = {
    {"tq2_0", ggml_vec_dot_tq2_0_q8_K, QK_K, sizeof(block_tq2_0), QK_K, sizeof(block_q8_K)},
    {"q2_0", ggml_vec_dot_q2_0_q8_0, QK2_0, sizeof(block_q2_0), QK8_0, sizeof(block_q8_0)},
    {"q8_0", ggml_vec_dot_q8_0_q8_0, QK8_0, sizeof(block_q8_0), QK8_0, sizeof(block_q8_0)},
};

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    const struct type *type = types;
    while (strcmp(type->name, argv[1])) type++;
    size_t number[5];
    for (int i = 0; i < 5; i++) number[i] = strtoul(argv[i + 2], NULL, 10);
    size_t at_once = number[0], rows = number[1], cols = number[2], batch = number[3];
    size_t w_bytes = cols / type->weights * type->bytes;
    size_t x_bytes = cols / type->activations * type->activation_bytes;
    char *w = calloc(rows, w_bytes), *x = calloc(batch, x_bytes);
    float *y = malloc(sizeof(float) * rows * batch);
    for (size_t time = 0; time < number[4]; time++)
        for (size_t b = 0; b < batch; b += at_once)
            for (size_t r = 0; r < rows; r += at_once)
                type->multiply((int)cols, y + b * rows + r, rows, w + r * w_bytes, w_bytes,
                               x + b * x_bytes, x_bytes, (int)at_once);
    return 0;
}
