/* gps-ekf: one step of an extended Kalman filter that follows a GPS receiver.
 *
 * The program keeps nothing. The filter's state comes in with the request and goes out with the response, and the client
 * sends it back with the next satellites (README.md has the format). The first request has no state: then a least-squares
 * fix of at least four satellites starts the filter.
 *
 * State, constant velocity: position x y z (m, Earth-centred Earth-fixed), clock bias b (m, times the speed of light),
 * their rates vx vy vz (m/s) and d (m/s). Measurement: pseudoranges, h_i = |p - s_i| + b. */

#include <math.h>

#include "../common/io.h"
#include "decimal.h"

enum { HALF = 4, N = 2 * HALF, TRIANGLE = N * (N + 1) / 2, MOST_SATELLITES = 32 };

/* Noise: the parameters of the model, as spectral densities over one second. */
static const double acceleration_density = 1.0; /* (m/s^2)^2 s, each axis: a car or a walker */
static const double clock_bias_density = 0.4;   /* m^2/s, a temperature-compensated crystal (S_f) */
static const double clock_drift_density = 0.04; /* (m/s)^2/s (S_g) */
static const double range_variance = 25.0;      /* m^2 of one pseudorange */
static const double first_rate_variance = 100;  /* (m/s)^2, before any movement was seen */

static const char program[] = "gps-ekf";
static char input[64 << 10];
/* predicted, state, covariance: 3 + 8 + 36 numbers and the words before them. */
static char output[(3 + N + TRIANGLE) * (DECIMAL_LENGTH + 1) + 64];

struct satellite {
    double position[3], range;
};

struct request {
    double step; /* seconds since the last request */
    int has_step, has_state, has_covariance, satellites;
    double state[N], covariance[N][N];
    struct satellite satellite[MOST_SATELLITES];
};

/* --- input and output ------------------------------------------------------------------------------------------- */

/* Ends the program with a message that names the line. */
_Noreturn static void fail_at(int line, const char *message) {
    char text[160] = "line ", *out = text + 5, digits[10];
    int count = 0;
    do digits[count++] = (char)('0' + line % 10);
    while ((line /= 10) > 0);
    while (count > 0) *out++ = digits[--count];
    *out++ = ':';
    *out++ = ' ';
    strncpy(out, message, sizeof text - 1 - (size_t)(out - text));
    fail(program, text);
}

static const char *skip_blanks(const char *text, const char *end) {
    while (text < end && (*text == ' ' || *text == '\t' || *text == '\r')) text++;
    return text;
}

/* Reads exactly `count` numbers up to the end of the line. */
static void read_numbers(const char *text, const char *end, int line, double *values, int count) {
    for (int index = 0; index < count; index++) {
        text = skip_blanks(text, end);
        if (text == end) fail_at(line, "too few numbers");
        text = decimal_read(text, end, &values[index]);
        if (!text) fail_at(line, "not a decimal number between 1e-22 and 1e22");
    }
    if (skip_blanks(text, end) != end) fail_at(line, "too many numbers");
}

/* The rest of the line after `word`, or a null pointer when the line begins with something else. */
static const char *after(const char *word, const char *text, const char *end) {
    size_t length = strlen(word);
    if ((size_t)(end - text) < length || memcmp(text, word, length) != 0) return 0;
    text += length;
    return text == end || *text == ' ' || *text == '\t' ? text : 0;
}

static void read_request(const char *text, const char *end, struct request *request) {
    for (int line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text)), *rest;
        if (!stop) stop = end;
        const char *word = skip_blanks(text, stop);
        if (word == stop || *word == '#' || after("predicted", word, stop)) {
            /* nothing to read: what the last response predicted is of no use to the filter */
        } else if ((rest = after("step", word, stop))) {
            if (request->has_step++) fail_at(line, "a second step");
            read_numbers(rest, stop, line, &request->step, 1);
            if (!(request->step > 0 && request->step <= 3600)) fail_at(line, "the step must be more than 0 and at most 3600 seconds");
        } else if ((rest = after("state", word, stop))) {
            if (request->has_state++) fail_at(line, "a second state");
            read_numbers(rest, stop, line, request->state, N);
        } else if ((rest = after("covariance", word, stop))) {
            if (request->has_covariance++) fail_at(line, "a second covariance");
            double triangle[TRIANGLE], *next = triangle;
            read_numbers(rest, stop, line, triangle, TRIANGLE);
            for (int row = 0; row < N; row++)
                for (int column = row; column < N; column++) request->covariance[row][column] = request->covariance[column][row] = *next++;
            for (int row = 0; row < N; row++)
                if (!(request->covariance[row][row] > 0)) fail_at(line, "a variance is not positive");
        } else if ((rest = after("satellite", word, stop))) {
            double values[4];
            if (request->satellites == MOST_SATELLITES) fail_at(line, "more than 32 satellites");
            read_numbers(rest, stop, line, values, 4);
            struct satellite *satellite = &request->satellite[request->satellites++];
            memcpy(satellite->position, values, sizeof satellite->position);
            satellite->range = values[3];
        } else {
            fail_at(line, "begins with none of step, state, covariance, satellite, predicted, #");
        }
        text = stop + (stop < end);
    }
    if (request->has_state != request->has_covariance) fail(program, "a state and its covariance come together or not at all");
    if (request->has_state && !request->has_step) fail(program, "the step is missing: the seconds since the state");
    if (request->satellites == 0) fail(program, "there is no satellite");
}

/* Writes `word`, the numbers and a line's end. */
static char *write_numbers(char *out, const char *word, const double *values, int count) {
    size_t length = strlen(word);
    memcpy(out, word, length);
    out += length;
    for (int index = 0; index < count; index++) {
        if (!(fabs(values[index]) <= 1e22)) fail(program, "the filter diverged: check the satellites and the state");
        *out++ = ' ';
        out = decimal_write(out, values[index]);
    }
    *out++ = '\n';
    return out;
}

/* --- linear algebra --------------------------------------------------------------------------------------------- */

/* Cholesky: the lower triangle of `a` (n x n in rows of `stride`) becomes L with L L' = a; 0 when a is not positive definite. */
static int factorise(double *a, int n, int stride) {
    for (int row = 0; row < n; row++) {
        for (int column = 0; column <= row; column++) {
            double sum = a[row * stride + column];
            for (int k = 0; k < column; k++) sum -= a[row * stride + k] * a[column * stride + k];
            if (row > column) {
                a[row * stride + column] = sum / a[column * stride + column];
            } else {
                if (!(sum > 0)) return 0;
                a[row * stride + row] = sqrt(sum);
            }
        }
    }
    return 1;
}

/* Solves L y = b in place. */
static void forward(const double *l, int n, int stride, double *b) {
    for (int row = 0; row < n; row++) {
        for (int k = 0; k < row; k++) b[row] -= l[row * stride + k] * b[k];
        b[row] /= l[row * stride + row];
    }
}

/* Solves L' x = y in place. */
static void backward(const double *l, int n, int stride, double *y) {
    for (int row = n - 1; row >= 0; row--) {
        for (int k = row + 1; k < n; k++) y[row] -= l[k * stride + row] * y[k];
        y[row] /= l[row * stride + row];
    }
}

/* --- the filter ------------------------------------------------------------------------------------------------- */

/* The innovation of one satellite, and its row of the Jacobian: the unit vector from satellite to receiver and 1 for the
 * bias; the rates have no part. */
static double innovation(const struct satellite *satellite, const double *state, double *row) {
    double square = 0;
    for (int axis = 0; axis < 3; axis++) row[axis] = state[axis] - satellite->position[axis], square += row[axis] * row[axis];
    double distance = sqrt(square);
    if (!(distance >= 1)) fail(program, "a satellite is where the receiver is");
    for (int axis = 0; axis < 3; axis++) row[axis] /= distance;
    row[3] = 1;
    return satellite->range - (distance + state[3]);
}

/* The first fix: Gauss-Newton from the Earth's centre; its covariance is range_variance (H'H)^-1. */
static void fix(struct request *request) {
    if (request->satellites < HALF) fail(program, "the first fix needs at least four satellites");
    double normal[HALF][HALF];
    for (int round = 0; round < 12; round++) {
        double right[HALF] = {0}, change = 0;
        memset(normal, 0, sizeof normal);
        for (int index = 0; index < request->satellites; index++) {
            double row[HALF], residual = innovation(&request->satellite[index], request->state, row);
            for (int i = 0; i < HALF; i++) {
                right[i] += row[i] * residual;
                for (int j = 0; j < HALF; j++) normal[i][j] += row[i] * row[j];
            }
        }
        if (!factorise(&normal[0][0], HALF, HALF)) fail(program, "the satellites do not determine a position");
        forward(&normal[0][0], HALF, HALF, right);
        backward(&normal[0][0], HALF, HALF, right);
        for (int i = 0; i < HALF; i++) request->state[i] += right[i], change += right[i] * right[i];
        if (change < 1e-6) break;
    }
    for (int column = 0; column < HALF; column++) {
        double unit[HALF] = {0};
        unit[column] = range_variance;
        forward(&normal[0][0], HALF, HALF, unit);
        backward(&normal[0][0], HALF, HALF, unit);
        for (int row = 0; row < HALF; row++) request->covariance[row][column] = unit[row];
        request->covariance[HALF + column][HALF + column] = first_rate_variance;
    }
}

/* Prediction: x = F x, P = F P F' + Q, with F = [I, t I; 0, I] and the Q of white noise on the rates (Brown and Hwang,
 * chapter 9). */
static void predict(struct request *request) {
    double t = request->step, (*p)[N] = request->covariance;
    for (int i = 0; i < HALF; i++) request->state[i] += t * request->state[HALF + i];
    for (int i = 0; i < HALF; i++)
        for (int column = 0; column < N; column++) p[i][column] += t * p[HALF + i][column];
    for (int row = 0; row < N; row++)
        for (int i = 0; i < HALF; i++) p[row][i] += t * p[row][HALF + i];
    for (int i = 0; i < HALF; i++) {
        double density = i < 3 ? acceleration_density : clock_drift_density;
        p[i][i] += density * t * t * t / 3 + (i < 3 ? 0 : clock_bias_density * t);
        p[i][HALF + i] += density * t * t / 2;
        p[HALF + i][i] += density * t * t / 2;
        p[HALF + i][HALF + i] += density * t;
    }
}

/* Update with all m pseudoranges: S = H P H' + R = L L', W = L^-1 H P, x += W' L^-1 innovation, P -= W' W. */
static void update(struct request *request) {
    int m = request->satellites;
    double (*p)[N] = request->covariance, rows[MOST_SATELLITES][HALF], residual[MOST_SATELLITES];
    double s[MOST_SATELLITES][MOST_SATELLITES], w[N][MOST_SATELLITES];
    for (int i = 0; i < m; i++) {
        residual[i] = innovation(&request->satellite[i], request->state, rows[i]);
        for (int column = 0; column < N; column++) {
            double sum = 0;
            for (int k = 0; k < HALF; k++) sum += rows[i][k] * p[k][column];
            w[column][i] = sum;
        }
    }
    for (int i = 0; i < m; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = i == j ? range_variance : 0;
            for (int k = 0; k < HALF; k++) sum += rows[i][k] * w[k][j];
            s[i][j] = sum;
        }
    }
    if (!factorise(&s[0][0], m, MOST_SATELLITES)) fail(program, "the covariance is not positive definite");
    forward(&s[0][0], m, MOST_SATELLITES, residual);
    for (int column = 0; column < N; column++) forward(&s[0][0], m, MOST_SATELLITES, w[column]);
    for (int row = 0; row < N; row++) {
        for (int k = 0; k < m; k++) request->state[row] += w[row][k] * residual[k];
        for (int column = 0; column <= row; column++) {
            double sum = p[row][column];
            for (int k = 0; k < m; k++) sum -= w[row][k] * w[column][k];
            p[row][column] = p[column][row] = sum;
        }
    }
}

int main(void) {
    static struct request request;
    size_t length = read_all(program, input, sizeof input);
    read_request(input, input + length, &request);
    if (request.has_state) {
        predict(&request);
        update(&request);
    } else {
        fix(&request);
    }

    double ahead = request.has_step ? request.step : 1, predicted[3], triangle[TRIANGLE], *next = triangle;
    for (int axis = 0; axis < 3; axis++) predicted[axis] = request.state[axis] + ahead * request.state[HALF + axis];
    for (int row = 0; row < N; row++)
        for (int column = row; column < N; column++) *next++ = request.covariance[row][column];
    char *out = write_numbers(output, "predicted", predicted, 3);
    out = write_numbers(out, "state", request.state, N);
    out = write_numbers(out, "covariance", triangle, TRIANGLE);
    write_all(STDOUT_FILENO, output, (size_t)(out - output));
    return 0;
}
