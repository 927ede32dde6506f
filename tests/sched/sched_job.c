/* SPDX-License-Identifier: Apache-2.0 */
#include "sched_job.h"
#include "ps_cmocka.h"
#include <sys/stat.h>

static const char config[] = "{\"model_type\": \"opt\", \"activation_function\": \"relu\", "
                             "\"do_layer_norm_before\": %s, \"ffn_dim\": %d, "
                             "\"hidden_size\": 48, \"max_position_embeddings\": 128, "
                             "\"num_attention_heads\": 3, \"num_hidden_layers\": %d, "
                             "\"vocab_size\": 257, \"word_embed_proj_dim\": %d, \"bos_token_id\": "
                             "2, \"eos_token_id\": 2, \"pad_token_id\": 1, "
                             "\"torch_dtype\": \"float16\"}";

static void make_prompts(struct sj *j)
{
    unsigned seed = 11;
    for (uint32_t i = 0; i < SJ_SEQS; i++) {
        struct sj_seq *q = &j->seq[i];
        uint32_t n = i == 0 ? 1 : 1 + (uint32_t) rand_r(&seed) % 50,
                 new = (uint32_t) rand_r(&seed) % 31;
        for (uint32_t k = 0; k < n; k++) q->prompt[k] = rand_r(&seed) % 257;
        q->seq = (struct ps_seq) { .prompt = q->prompt,
                                   .n_prompt = n,
                                   .max_tokens = new,
                                   .key = i,
                                   .top_p = 1,
                                   .temperature = i % 3 ? 0 : 0.7f,
                                   .n_top = i % 4,
                                   .score_prompt = i % 5 == 0,
                                   .ud = q };
        j->stats.requests++;
        j->stats.prompt_tokens += n;
        j->stats.max_new_tokens += new;
        if (n > j->stats.longest_prompt) j->stats.longest_prompt = n;
        if (n + new > j->stats.longest_total) j->stats.longest_total = n + new;
    }
    j->stats.most_top = 3;
    j->stats.scores_prompts = true;
    j->n_seqs = SJ_SEQS;
}

static void open_model(struct sj *j, bool norm_before, int layers, int ffn)
{
    struct ps_detail dt = { "" };
    char path[128], text[1024];
    *j = (struct sj) { .dir = "/tmp/ps-sched-XXXXXX" };
    assert_non_null(mkdtemp(j->dir));
    snprintf(text, sizeof text, config, norm_before ? "true" : "false", ffn, layers,
             norm_before ? 48 : 20);
    snprintf(path, sizeof path, "%s/config.json", j->dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    char packed[128];
    snprintf(packed, sizeof packed, "%s/packed", j->dir);
    struct ps_convert_opt opt = { .dtype = -1, .threads = 1 };
    assert_ok_dt(ps_pack_dummy(path, packed, 7, &opt, &dt), &dt);
    assert_ok_dt(ps_pack_open(packed, &j->model, &dt), &dt);
    make_prompts(j);
}

void sj_open(struct sj *j, bool norm_before)
{
    open_model(j, norm_before, norm_before ? 3 : 1, 100);
}

void sj_open_wide(struct sj *j)
{
    open_model(j, true, 2, 90000);
    j->n_seqs = 4;
}

void sj_close(struct sj *j)
{
    char cmd[128];
    ps_pack_close(j->model);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", j->dir);
    assert_int_equal(system(cmd), 0);
}

struct ps_plan_req sj_req(const struct sj *j, const char *policy)
{
    struct ps_plan_req q = { .model = j->model,
                             .job = j->stats,
                             .host_mem = 1 << 30,
                             .disk_space = 1 << 30,
                             .weights = { { 0, 100, 0 } },
                             .kv = { { 0, 100, 0 } },
                             .hidden = { { 0, 100, 0 } },
                             .gpu_batch_size = 4,
                             .num_gpu_batches = 1,
                             .kv_config = ps_kv_config_default(),
                             .threads = 2 };
    q.kv_config.policy = policy;
    return q;
}

/* ---- the job's side */

static int next(void *ud, struct ps_seq **ret)
{
    struct sj *j = ud;
    if (j->seen) j->seen();
    if (j->at == j->n_seqs) return 0;
    *ret = &j->seq[j->at++].seq;
    return 1;
}

static int scored(void *ud, struct ps_seq *s, uint32_t first, const struct ps_sample_out *out,
                  uint32_t n)
{
    struct sj_seq *q = s->ud;
    if (first != q->n_scored + 1 || first + n > s->n_prompt) return -EPROTO;
    for (uint32_t i = 0; i < n; i++) {
        if (out[i].token != s->prompt[first + i]) return -EPROTO;
        q->scored[q->n_scored++] = out[i].logprob;
    }
    return 0;
}

static int token(void *ud, struct ps_seq *s, uint32_t index, const struct ps_sample_out *out,
                 bool *ret_end)
{
    struct sj_seq *q = s->ud;
    if (index != q->n_out || q->ends) return -EPROTO;
    q->out[q->n_out++] = *out;
    *ret_end = out->token == 13 && s->n_prompt > 5; /* some end early */
    return 0;
}

static uint32_t jump(void *ud, const struct ps_seq *s, uint32_t made)
{
    const struct sj *j = ud;
    struct sj_seq *q = s->ud;
    if (!j->jump || made != j->jump_at) return 0;
    q->n_out += j->jump;
    return j->jump;
}

static int kept(void *ud, struct ps_seq *s, const struct ps_kept *k)
{
    struct sj_seq *q = s->ud;
    for (uint32_t i = 0; i < k->kv_heads * k->n; i++) {
        uint32_t bits = 0;
        if (k->score) memcpy(&bits, &k->score[i], sizeof bits);
        if (i % k->n && k->pos[i] <= k->pos[i - 1]) return -EPROTO;
        q->kept_sum =
            (q->kept_sum ^ ((uint64_t) k->layer << 40 ^ (uint64_t) k->pos[i] << 32 ^ bits)) *
            0x9E3779B97F4A7C15u;
    }
    return k->tokens_fed == s->n_prompt + (q->n_out ? q->n_out - 1 : 0) ? 0 : -EPROTO;
}

static int end(void *ud, struct ps_seq *s)
{
    ((struct sj_seq *) s->ud)->ends++;
    return 0;
}

static int sweep(void *ud, const struct ps_run_stats *stats)
{
    struct sj *j = ud;
    if (j->seen) j->seen();
    return j->stop_after && ++j->sweeps >= j->stop_after ? PS_GO_STOP : PS_GO_ON;
}

int sj_run(struct sj *j, struct ps_plan_req *req, const struct ps_sim_cfg *sim,
           struct ps_detail *dt)
{
    struct ps_plan plan;
    for (uint32_t i = 0; i < j->n_seqs; i++) {
        struct sj_seq *q = &j->seq[i];
        q->seq.prompt = q->prompt; /* the record may be a copy of another's */
        q->seq.ud = q;
        q->n_out = q->n_scored = q->ends = 0;
        q->kept_sum = 1;
        memset(q->out, 0, sizeof q->out);
        memset(q->scored, 0, sizeof q->scored);
    }
    j->at = j->sweeps = 0;
    int r = ps_plan_make(req, &plan, NULL, dt);
    if (r < 0) return r;
    struct ps_run_cfg cfg = { .model = j->model,
                              .plan = &plan,
                              .kv_config = &req->kv_config,
                              .offload_dir = j->dir,
                              .threads = req->threads,
                              .dump_kv = !sim && !j->no_dump,
                              .verify_always = j->verify_always,
                              .device = j->device,
                              .schedule = j->schedule,
                              .trace = j->trace,
                              .trace_ud = j->trace_ud,
                              .sim = sim };
    struct ps_run_io io = { .ud = j,
                            .next = next,
                            .scored = scored,
                            .token = token,
                            .jump = jump,
                            .kept = kept,
                            .end = end,
                            .sweep = sweep,
                            .skip = j->skip };
    r = ps_run(&cfg, &io, &j->run, dt);
    ps_plan_done(&plan);
    return r;
}

bool sj_same(const struct sj *a, const struct sj *b)
{
    for (uint32_t i = 0; i < a->n_seqs; i++) {
        const struct sj_seq *x = &a->seq[i], *y = &b->seq[i];
        if (x->n_out != y->n_out || x->n_scored != y->n_scored || x->ends != 1 || y->ends != 1 ||
            x->kept_sum != y->kept_sum || memcmp(x->out, y->out, sizeof x->out) != 0 ||
            memcmp(x->scored, y->scored, sizeof x->scored) != 0)
            return false;
    }
    return true;
}
