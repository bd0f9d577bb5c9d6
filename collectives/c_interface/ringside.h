/* Ringside from C, and from every language that can call C.
 *
 *     ringside_group* group;
 *     ringside_address mine, all[2];
 *     ringside_listen("127.0.0.1", 60, &group, &mine);
 *     ... exchange the addresses by a channel of your own: all[r] is that of rank r ...
 *     ringside_connect(group, rank, 2, all, "a secret of this job", "", 120);
 *     ringside_all_reduce(group, gradients, count, RINGSIDE_FP32, RINGSIDE_AVG, NULL);
 *     ringside_close(group);
 *
 * A group is a ProcessGroup (collectives/process_group.hpp): every rank makes the same calls in the
 * same order, over shared memory if all ranks run on one host, otherwise over TCP (RINGSIDE_BACKEND
 * chooses, as all variables of the environment do).
 *
 * Functions return a status. After any other than RINGSIDE_OK, ringside_last_error() is a sentence
 * that says what was expected, what was seen, and what to do. After RINGSIDE_RANK_FAILED and
 * RINGSIDE_INTERRUPTED, the group cannot be used any more, on any rank.
 *
 * Threads may share a group: their calls run one after the other, in the order in which they were
 * made, which must be the same on all ranks.
 *
 * The caller owns each group and each work, and frees it once: ringside_close(),
 * ringside_work_free(). Any thread may do so at any time. A function that another thread is in
 * returns as it would have; a later one is refused with a sentence, and a second free does
 * nothing. */
#ifndef RINGSIDE_H
#define RINGSIDE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a function or a constant changes. A program that loads the library at run time
 * compares it with ringside_abi_version(). */
#define RINGSIDE_ABI_VERSION 2
int ringside_abi_version(void);

/* These are numbers, not enumerations, so that any may be given: a wrong one is refused. */
typedef int ringside_status;
enum {
  RINGSIDE_OK = 0,
  RINGSIDE_ERROR = 1,       /* wrong arguments, or what the system refuses */
  RINGSIDE_RANK_FAILED = 2, /* a rank is gone, has given up, does not answer, or disagrees */
  RINGSIDE_TIMED_OUT = 3,   /* ringside_work_wait(): the call has not ended */
  RINGSIDE_INTERRUPTED = 4  /* the function of ringside_check_while_waiting() asked for it */
};

typedef int ringside_type;
enum {
  RINGSIDE_FP32 = 0,
  RINGSIDE_FP64 = 1,
  RINGSIDE_INT32 = 2,
  RINGSIDE_INT64 = 3,
  RINGSIDE_FP16 = 4,
  RINGSIDE_BF16 = 5,
  RINGSIDE_UINT8 = 6,
  RINGSIDE_INT8 = 7,
  RINGSIDE_INT16 = 8,
  RINGSIDE_BOOL = 9 /* a byte, 0 or 1; a sum is "or", a product is "and" */
};

typedef int ringside_op;
enum {
  RINGSIDE_SUM = 0,
  RINGSIDE_PRODUCT = 1,
  RINGSIDE_MIN = 2,
  RINGSIDE_MAX = 3,
  RINGSIDE_AVG = 4, /* of floating-point types: the sum in the type, divided once at the end. Where
                       the sum overflows it is an infinity: fp16 60000 on two ranks. Scale before
                       a RINGSIDE_SUM, or reduce in a wider type. */
  RINGSIDE_BIT_AND = 5, /* of all other types, as the next two */
  RINGSIDE_BIT_OR = 6,
  RINGSIDE_BIT_XOR = 7
};

/* The sentence of this thread's last failure; "" if it has had none. Valid until the next. */
const char* ringside_last_error(void);

/* ---- A group, from a list of addresses */

typedef struct ringside_group ringside_group;

/* Where a rank listens: 64 bytes to pass on as they are. */
typedef struct {
  unsigned char bytes[64];
} ringside_address;

/* Listens on a free port at `host`, a name or an address of this host by which the other ranks
 * reach it; RINGSIDE_INTERFACE overrides it. All ranks must then connect within `connect_timeout`
 * seconds. */
ringside_status ringside_listen(const char* host, double connect_timeout, ringside_group** group,
                                ringside_address* address);

/* Connects rank `rank` of `size` with the others; rank r listens at addresses[r]. Blocks until all
 * are connected. `job_key` is a secret that all ranks of this group have and no other group has:
 * each connection begins with a proof of it. `name` stands in messages: "" for the ranks of the
 * whole job, otherwise a name and the ranks of the job that are members, "pipeline@2,3". A rank
 * that waits for `timeout` seconds without any progress ends the group. */
ringside_status ringside_connect(ringside_group* group, int rank, int size,
                                 const ringside_address* addresses, const char* job_key,
                                 const char* name, double timeout);

/* Tells all other ranks that this one gives up, and why. Their calls fail with this cause, as this
 * rank's do. It does not wait for a call of the same group that blocks. */
void ringside_abort(ringside_group* group, const char* cause);

/* Waits for the collectives under way and frees the group. Work of the group stays valid. NULL is
 * allowed. */
void ringside_close(ringside_group* group);

/* "tcp" or "shm"; valid until the group is closed. NULL if it is. */
const char* ringside_transport(const ringside_group* group);

/* The bytes that this rank has sent in collectives of the group, without headers of messages. */
size_t ringside_bytes_sent(ringside_group* group);

/* The algorithm of a call over `count` elements, such as "ring"; `collective` is a name such as
 * "all_reduce". NULL if there is no such collective. */
const char* ringside_algorithm(ringside_group* group, const char* collective, size_t count,
                               ringside_type type);

/* ---- Collectives
 *
 * With work == NULL they block. Otherwise they return at once: do not touch the buffers before
 * ringside_work_wait() has returned RINGSIDE_OK, and free each work once.
 *
 * `count` is in elements. Where a buffer has a block for each rank, it is the length of a block. Or
 * blocks have lengths of their own: counts[r] is that of rank r, all ranks give the same list, and
 * `count` is not used. The list may be freed when the function returns. */

typedef struct ringside_work ringside_work;

/* data = the reduction of the data of all ranks. */
ringside_status ringside_all_reduce(ringside_group* group, void* data, size_t count,
                                    ringside_type type, ringside_op op, ringside_work** work);

/* data = the data of the root. */
ringside_status ringside_broadcast(ringside_group* group, void* data, size_t count,
                                   ringside_type type, int root, ringside_work** work);

/* data on the root = the reduction of the data of all ranks. */
ringside_status ringside_reduce(ringside_group* group, void* data, size_t count, ringside_type type,
                                ringside_op op, int root, ringside_work** work);

/* output, with a block for each rank = the inputs of all ranks. The input may be its block of it.
 * counts may be NULL. */
ringside_status ringside_all_gather(ringside_group* group, const void* input, void* output,
                                    size_t count, const size_t* counts, ringside_type type,
                                    ringside_work** work);

/* output = the reduction of this rank's block of all inputs, which have one for each rank. counts
 * may be NULL. */
ringside_status ringside_reduce_scatter(ringside_group* group, const void* input, void* output,
                                        size_t count, const size_t* counts, ringside_type type,
                                        ringside_op op, ringside_work** work);

/* output on the root, with a block for each rank = the inputs of all ranks. */
ringside_status ringside_gather(ringside_group* group, const void* input, void* output,
                                size_t count, ringside_type type, int root, ringside_work** work);

/* output = this rank's block of the root's input. */
ringside_status ringside_scatter(ringside_group* group, const void* input, void* output,
                                 size_t count, ringside_type type, int root, ringside_work** work);

/* Block i of the output = this rank's block of rank i's input. Both lists of counts may be NULL; if
 * not, each rank gives its own: sent[r] elements go to rank r, and received[r] come from there. */
ringside_status ringside_all_to_all(ringside_group* group, const void* input, void* output,
                                    size_t count, const size_t* sent, const size_t* received,
                                    ringside_type type, ringside_work** work);

/* Ends when every rank has called it. */
ringside_status ringside_barrier(ringside_group* group, ringside_work** work);

/* ---- Messages between two ranks
 *
 * They have connections of their own: they wait for no collective and not for each other, and two
 * ranks that send to each other first do not deadlock. A message that nobody expects yet is kept
 * by the receiver. A receive takes the first message with its tag; type and count must agree. */

ringside_status ringside_send(ringside_group* group, const void* data, size_t count,
                              ringside_type type, int to, int tag, ringside_work** work);

enum { RINGSIDE_ANY_RANK = -1 };

/* `from` may be RINGSIDE_ANY_RANK. */
ringside_status ringside_recv(ringside_group* group, void* data, size_t count, ringside_type type,
                              int from, int tag, ringside_work** work);

/* ---- Work */

/* 1 if the call has ended, successfully or not, otherwise 0; -1 if the work was freed. */
int ringside_work_done(const ringside_work* work);

/* Waits until the call has ended, and returns its status; RINGSIDE_TIMED_OUT if it has not ended
 * after `seconds`, and then it runs on. With seconds < 0 it waits without a limit of its own: calls,
 * and messages of one rank, fail when nothing has arrived for RINGSIDE_TIMEOUT. */
ringside_status ringside_work_wait(ringside_work* work, double seconds);

/* The rank that sent the message, once a receive has ended; otherwise -1. */
int ringside_work_source(const ringside_work* work);

/* A call that has not ended runs on. NULL is allowed. */
void ringside_work_free(ringside_work* work);

/* ---- Interruption */

/* `check` is called about 20 times a second on each thread that blocks in a call or in
 * ringside_connect(), but not in a blocking call that waits for work of its group to end first.
 * Where it returns other than 0, that function returns RINGSIDE_INTERRUPTED. It belongs to the
 * process; NULL removes it. A language whose handler of Ctrl-C runs in its own interpreter needs
 * it. */
void ringside_check_while_waiting(int (*check)(void));

#ifdef __cplusplus
}
#endif

#endif
