/* Publishes to a JetStream stream with a bound on what is in flight, and prints messages per second.
 * usage: nats_publish URL SECONDS IN_FLIGHT SIZE SUBJECT
 * cc -O2 -o nats_publish nats_publish.c -lnats -lpthread */
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long failed = 0;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void on_error(jsCtx *js, jsPubAckErr *error, void *closure) { failed++; }

int main(int count, char **arguments) {
    if (count != 6) return 2;
    double seconds = atof(arguments[2]);
    int size = atoi(arguments[4]);
    char *value = malloc(size);
    memset(value, 'x', size);

    natsOptions *options = NULL;
    natsConnection *connection = NULL;
    natsOptions_Create(&options);
    natsOptions_SetURL(options, arguments[1]);
    natsOptions_SetNoRandomize(options, true);
    if (natsConnection_Connect(&connection, options) != NATS_OK) return 1;

    jsCtx *js = NULL;
    jsOptions how;
    jsOptions_Init(&how);
    how.PublishAsync.MaxPending = atol(arguments[3]);
    how.PublishAsync.ErrHandler = on_error;
    natsConnection_JetStream(&js, connection, &how);

    long sent = 0;
    double began = now();
    while (now() - began < seconds)
        for (int i = 0; i < 64; i++)
            if (js_PublishAsync(js, arguments[5], value, size, NULL) == NATS_OK) sent++;
            else failed++;
    jsPubOptions wait;
    jsPubOptions_Init(&wait);
    wait.MaxWait = 10000;
    if (js_PublishAsyncComplete(js, &wait) != NATS_OK || failed) return 1;
    printf("%.1f\n", sent / (now() - began));
    return 0;
}
