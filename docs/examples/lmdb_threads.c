/*
 * Threads with one environment of LMDB: docs/results/programs.md.
 *
 *     lmdb_threads FOLDER READERS [LOOKUPS] [COMMITS]
 *
 * Each reader looks keys up, each in a transaction of its own. One writer commits meanwhile: each
 * of its transactions writes the same number to all keys. So a reader that finds two numbers in one
 * transaction has seen a transaction in part.
 */
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS 16

static MDB_env *env;
static MDB_dbi dbi;
static pthread_barrier_t start;
static long lookups = 100, commits = 20;

static void check(int result) {
    if (result) {
        fprintf(stderr, "lmdb: %s\n", mdb_strerror(result));
        exit(1);
    }
}

static void write_all(long number) {
    MDB_txn *txn;
    check(mdb_txn_begin(env, NULL, 0, &txn));
    for (int index = 0; index < KEYS; index++) {
        MDB_val key = {sizeof index, &index}, value = {sizeof number, &number};
        check(mdb_put(txn, dbi, &key, &value, 0));
    }
    check(mdb_txn_commit(txn));
}

static long get(MDB_txn *txn, int index) {
    MDB_val key = {sizeof index, &index}, value;
    check(mdb_get(txn, dbi, &key, &value));
    return *(long *)value.mv_data;
}

static void *read_some(void *argument) {
    long torn = 0;
    pthread_barrier_wait(&start);
    for (long round = 0; round < lookups; round++) {
        MDB_txn *txn;
        check(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
        torn += get(txn, (int)(round % KEYS)) != get(txn, (int)((round + 7) % KEYS));
        mdb_txn_abort(txn);
    }
    (void)argument;
    return (void *)torn;
}

static void *write_some(void *argument) {
    pthread_barrier_wait(&start);
    for (long number = 1; number <= commits; number++)
        write_all(number);
    return argument;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    int readers = atoi(words[2]);
    if (count > 3)
        lookups = atol(words[3]);
    if (count > 4)
        commits = atol(words[4]);
    MDB_txn *txn;
    check(mdb_env_create(&env));
    check(mdb_env_set_maxreaders(env, (unsigned)readers + 1));
    check(mdb_env_open(env, words[1], MDB_NOSYNC, 0644));
    check(mdb_txn_begin(env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY | MDB_CREATE, &dbi));
    check(mdb_txn_commit(txn));
    write_all(0);
    pthread_t *ids = calloc((size_t)readers + 1, sizeof *ids);
    pthread_barrier_init(&start, NULL, (unsigned)readers + 1);
    pthread_create(&ids[readers], NULL, write_some, NULL);
    for (int index = 0; index < readers; index++)
        pthread_create(&ids[index], NULL, read_some, NULL);
    long torn = 0;
    for (int index = 0; index <= readers; index++) {
        void *result;
        pthread_join(ids[index], &result);
        torn += (long)result;
    }
    check(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    printf("%d readers, torn %ld, last %ld\n", readers, torn, get(txn, 0));
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return torn != 0;
}
