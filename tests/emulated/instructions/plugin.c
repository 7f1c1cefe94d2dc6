/* A plugin of qemu: counts the instructions that a program executes, and how often each block of them is
 * entered. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*tb_callback)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*exit_callback)(qemu_plugin_id_t, void *);
enum { ADD_U64 = 0 };
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_callback);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, exit_callback, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_start_code(void);

int qemu_plugin_version = 1;

/* A translated block; qemu may translate the same instructions several times. */
struct block {
    uint64_t at, instructions, entered;
    struct block *next;
};
static struct block *blocks;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    struct block *block = malloc(sizeof *block);
    if (!block) abort();
    *block = (struct block){qemu_plugin_tb_vaddr(tb), qemu_plugin_tb_n_insns(tb), 0, blocks};
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &block->entered, 1);
}

static void ended(qemu_plugin_id_t id, void *data) {
    (void)id;
    (void)data;
    uint64_t count = 0;
    fprintf(stderr, "start %" PRIu64 "\n", qemu_plugin_start_code());
    for (struct block *b = blocks; b; b = b->next) {
        count += b->entered * b->instructions;
        fprintf(stderr, "block %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", b->at, b->instructions, b->entered);
    }
    fprintf(stderr, "instructions %" PRIu64 "\n", count);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
