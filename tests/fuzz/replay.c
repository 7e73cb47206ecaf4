/*
 * main() for a fuzz target without libFuzzer: replays the files of the folders given, and of each file every
 * prefix and a few thousand single-octet changes. So the corpus is a regression test with any compiler, and under
 * the sanitizers. No randomness: two runs do the same.
 *
 *   replay_X FOLDER|FILE...      prints "N inputs, M variations"
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX (1u << 20)
#define PREFIXES_MAX 512u
#define CHANGES_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static unsigned long inputs, variations;

/* In a block of its own that ends where the input ends, so that AddressSanitizer sees one octet too much. */
static void run(const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        abort();
    memcpy(copy, data, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void run_variations(uint8_t *data, size_t len)
{
    static const uint8_t masks[] = { 0x01, 0x80, 0xff, 0x40 };
    size_t prefixes = len < PREFIXES_MAX ? len : PREFIXES_MAX;
    size_t changes = 0;

    for (size_t l = 0; l < prefixes; l++, variations++)
        run(data, l);
    for (size_t m = 0; m < sizeof(masks); m++) {
        for (size_t i = 0; i < len && changes < CHANGES_MAX; i++, changes++, variations++) {
            data[i] ^= masks[m];
            run(data, len);
            data[i] ^= masks[m];
        }
    }
}

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    uint8_t *data = malloc(INPUT_MAX);
    if (!data)
        abort();
    size_t len = fread(data, 1, INPUT_MAX, f);
    fclose(f);
    fprintf(stderr, "%s\n", path); /* the last line of the log names the input that crashed */
    run(data, len);
    inputs++;
    run_variations(data, len);
    free(data);
    return 0;
}

static int replay_folder(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);
    int failed = 0;

    if (n < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            char file[4096];
            snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
            failed |= replay_file(file);
        }
        free(names[i]);
    }
    free(names);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (LLVMFuzzerInitialize)
        (void)LLVMFuzzerInitialize(&argc, &argv);
    run((const uint8_t *)"", 0);
    inputs++;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            failed |= replay_folder(argv[i]);
        else
            failed |= replay_file(argv[i]);
    }
    printf("%lu inputs, %lu variations\n", inputs, variations);
    return failed ? 1 : 0;
}
