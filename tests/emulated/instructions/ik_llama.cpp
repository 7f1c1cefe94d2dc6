/* Multiplies by ik_llama.cpp's products of IQ2_BN several times, for a program that counts the instructions.
 *
 *     ik_llama iq2_bn|iq2_bn_r4 ROWS COLS BATCH TIMES
 */
#include "ggml-impl.h"
#include "iqk/iqk_gemm_1bit.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

void ggml_abort(const char *, int, const char *, ...) {
    abort();
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    const bool interleaved = !strcmp(argv[1], "iq2_bn_r4");
    const int rows = atoi(argv[2]), cols = atoi(argv[3]), batch = atoi(argv[4]), times = atoi(argv[5]);
    const int type = interleaved ? GGML_TYPE_IQ2_BN_R4 : GGML_TYPE_IQ2_BN;
    const int activations = interleaved ? GGML_TYPE_Q8_K16 : GGML_TYPE_Q8_K64;
    std::array<mul_mat_t, IQK_MAX_NY> products = {};
    mul_mat_t sixteen = nullptr;
    if (!iqk_set_kernels_1bit(cols, type, activations, products, sixteen)) return 1;
    const int most = IQK_MAX_NY - (int)std::count(products.begin(), products.end(), nullptr);
    // A row of weights has a scale in front, a row of activations at most eight floats.
    const size_t w_bytes = sizeof(float) + cols / 4, x_bytes = 8 * sizeof(float) + cols;
    std::vector<char> w(rows * w_bytes), x(batch * x_bytes);
    std::vector<float> y((size_t)rows * batch);
    DataInfo info{y.data(), x.data(), (size_t)rows, x_bytes, 0, 1, nullptr, 0};
    for (int time = 0; time < times; time++)
        for (info.cur_y = 0; info.cur_y < batch;) {
            const int tile = std::min(most, batch - info.cur_y);
            products[tile - 1](cols, w.data(), w_bytes, info, rows);
            info.cur_y += tile;
        }
    return 0;
}
