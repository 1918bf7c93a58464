# cython: language_level=3, binding=False
"""The thread of beanfield.io.sync_thread in C: it never takes the interpreter's lock.

The twin has to take it twice per sync, and waits for it while the loop is in compiled code, which does not let go of
it between two polls. The rules are the twin's.
"""

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <unistd.h>

    #define BEANFIELD_NOTHING (-1)  /* for the thread: no file; for the loop: no result */
    #define BEANFIELD_END (-2)

    typedef struct {
        pthread_mutex_t lock;
        pthread_cond_t asked;
        pthread_t thread;
        int descriptor; /* an eventfd: told after each sync */
        int file;
        int result;
    } beanfield_syncs;

    static void *beanfield_run_syncs(void *given) {
        beanfield_syncs *syncs = given;
        const uint64_t one = 1;
        for (;;) {
            int file, result;
            pthread_mutex_lock(&syncs->lock);
            while (syncs->file == BEANFIELD_NOTHING)
                pthread_cond_wait(&syncs->asked, &syncs->lock);
            file = syncs->file;
            syncs->file = BEANFIELD_NOTHING;
            pthread_mutex_unlock(&syncs->lock);
            if (file == BEANFIELD_END)
                return NULL;
            /* EINTR is taken for a failure like any other: no signal comes to this thread. */
            result = fdatasync(file) == 0 ? 0 : errno;
            pthread_mutex_lock(&syncs->lock);
            syncs->result = result;
            pthread_mutex_unlock(&syncs->lock);
            while (write(syncs->descriptor, &one, sizeof one) < 0 && errno == EINTR)
                ;
        }
    }

    static void beanfield_ask_syncs(beanfield_syncs *syncs, int file) {
        pthread_mutex_lock(&syncs->lock);
        syncs->file = file;
        pthread_cond_signal(&syncs->asked);
        pthread_mutex_unlock(&syncs->lock);
    }

    static int beanfield_take_result(beanfield_syncs *syncs) {
        int result;
        pthread_mutex_lock(&syncs->lock);
        result = syncs->result;
        syncs->result = BEANFIELD_NOTHING;
        pthread_mutex_unlock(&syncs->lock);
        return result;
    }

    static void beanfield_stop_syncs(beanfield_syncs *syncs) {
        beanfield_ask_syncs(syncs, BEANFIELD_END);
        pthread_join(syncs->thread, NULL);
        pthread_cond_destroy(&syncs->asked);
        pthread_mutex_destroy(&syncs->lock);
        free(syncs);
    }

    /* NULL: it could not be started, and `problem` is the errno. */
    static beanfield_syncs *beanfield_start_syncs(int descriptor, int *problem) {
        sigset_t all, before;
        beanfield_syncs *syncs = malloc(sizeof *syncs);
        if (syncs == NULL) {
            *problem = ENOMEM;
            return NULL;
        }
        pthread_mutex_init(&syncs->lock, NULL);
        pthread_cond_init(&syncs->asked, NULL);
        syncs->descriptor = descriptor;
        syncs->file = BEANFIELD_NOTHING;
        syncs->result = BEANFIELD_NOTHING;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        *problem = pthread_create(&syncs->thread, NULL, beanfield_run_syncs, syncs);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (*problem != 0) {
            free(syncs);
            return NULL;
        }
        pthread_setname_np(syncs->thread, "log sync");
        return syncs;
    }
    """
    ctypedef struct beanfield_syncs:
        pass
    beanfield_syncs* beanfield_start_syncs(int descriptor, int* problem)
    void beanfield_ask_syncs(beanfield_syncs* syncs, int file)
    int beanfield_take_result(beanfield_syncs* syncs)
    void beanfield_stop_syncs(beanfield_syncs* syncs) nogil


cdef class SyncThread:
    cdef beanfield_syncs* syncs
    cdef bint busy

    def __cinit__(self, int descriptor):
        cdef int problem = 0
        self.syncs = beanfield_start_syncs(descriptor, &problem)
        if self.syncs == NULL:
            raise OSError(problem, os.strerror(problem))

    def __dealloc__(self):
        # One whose disk stalls is left to itself: whoever lets go of it ends the process.
        if self.syncs != NULL and not self.busy:
            beanfield_stop_syncs(self.syncs)

    def begin(self, int file):
        assert self.syncs != NULL and file >= 0 and not self.busy
        self.busy = True
        beanfield_ask_syncs(self.syncs, file)

    def take(self):
        cdef int result
        assert self.syncs != NULL
        result = beanfield_take_result(self.syncs)
        if result >= 0:
            self.busy = False
        return result

    def stop(self):
        cdef beanfield_syncs* syncs = self.syncs
        assert syncs != NULL and not self.busy
        self.syncs = NULL
        with nogil:
            beanfield_stop_syncs(syncs)
