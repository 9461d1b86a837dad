/* Decimal numbers to double and back, with 15 significant digits.
 *
 * Both directions use only exact integers and IEEE 754 multiplication and division, so every machine gives the same
 * bytes. Reading up to 15 digits with an exponent within +-22 is correctly rounded (Clinger, "How to Read Floating Point
 * Numbers Accurately", PLDI 1990: both operands are exact). The C library would do it too, but its strtod and printf
 * calculate in long double, which Wasm has only in software: measured for the numbers of one request in Wasm, 48 us instead
 * of 11, where the filter itself takes 2. */
#ifndef GPS_EKF_DECIMAL_H
#define GPS_EKF_DECIMAL_H

#include <stdint.h>

#define DECIMAL_DIGITS 15
#define DECIMAL_EXPONENT 22
/* The longest written number: sign, 15 digits, point, "e-22". */
#define DECIMAL_LENGTH 24

static const double decimal_powers[DECIMAL_EXPONENT + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* value * 10^exponent for |exponent| <= 2 * DECIMAL_EXPONENT */
static double decimal_scale(double value, int exponent) {
    int magnitude = exponent < 0 ? -exponent : exponent;
    double power = decimal_powers[magnitude > DECIMAL_EXPONENT ? DECIMAL_EXPONENT : magnitude];
    double rest = decimal_powers[magnitude > DECIMAL_EXPONENT ? magnitude - DECIMAL_EXPONENT : 0];
    return exponent < 0 ? value / power / rest : value * power * rest;
}

/* Reads [+-]digits[.digits][e[+-]digits] that ends at `end`, a blank or a line's end. Returns the first byte after it, or a
 * null pointer when it is no number or its size is not within 1e-22 to 1e22. */
static const char *decimal_read(const char *text, const char *end, double *value) {
    int negative = 0, digits = 0, seen = 0, exponent = 0, point = 0;
    uint64_t mantissa = 0;
    if (text < end && (*text == '-' || *text == '+')) negative = *text++ == '-';
    for (; text < end; text++) {
        if (*text == '.' && !point) {
            point = 1;
        } else if (*text >= '0' && *text <= '9') {
            seen = 1;
            if (digits < DECIMAL_DIGITS + 2) { /* more digits say less than the last bit */
                mantissa = mantissa * 10 + (uint64_t)(*text - '0');
                digits += mantissa != 0;
                exponent -= point;
            } else {
                exponent += !point;
            }
            if (exponent > 1000 || exponent < -1000) return 0;
        } else {
            break;
        }
    }
    if (!seen) return 0;
    if (text < end && (*text == 'e' || *text == 'E')) {
        int sign = 1, written = 0, given = 0;
        text++;
        if (text < end && (*text == '-' || *text == '+')) sign = *text++ == '-' ? -1 : 1;
        for (; text < end && *text >= '0' && *text <= '9'; text++) {
            given = 1;
            if (written < 1000) written = written * 10 + (*text - '0');
        }
        if (!given) return 0;
        exponent += sign * written;
    }
    if (text < end && *text != ' ' && *text != '\t' && *text != '\n' && *text != '\r') return 0;
    if (mantissa == 0) {
        *value = 0;
        return text;
    }
    if (exponent > 2 * DECIMAL_EXPONENT || exponent < -2 * DECIMAL_EXPONENT) return 0;
    double magnitude = decimal_scale((double)mantissa, exponent);
    if (magnitude < 1e-22 || magnitude > 1e22) return 0;
    *value = negative ? -magnitude : magnitude;
    return text;
}

/* Writes `value`, whose size must be at most 1e22 (below 1e-22 it is 0), and returns the first byte after it. */
static char *decimal_write(char *out, double value) {
    double magnitude = value < 0 ? -value : value;
    if (magnitude < 1e-22) {
        *out++ = '0';
        return out;
    }
    int exponent = 0; /* magnitude = d.ddd * 10^exponent */
    if (magnitude >= 1) {
        while (exponent < DECIMAL_EXPONENT && magnitude >= decimal_powers[exponent + 1]) exponent++;
    } else {
        while (exponent > -DECIMAL_EXPONENT && magnitude * decimal_powers[-exponent] < 1) exponent--;
    }
    uint64_t digits = (uint64_t)(decimal_scale(magnitude, DECIMAL_DIGITS - 1 - exponent) + 0.5);
    if (digits >= 1000000000000000) digits /= 10, exponent++; /* 9.99… was rounded up */

    char text[DECIMAL_DIGITS];
    int length = DECIMAL_DIGITS;
    for (int index = DECIMAL_DIGITS - 1; index >= 0; index--) text[index] = (char)('0' + digits % 10), digits /= 10;
    while (length > 1 && text[length - 1] == '0') length--;

    if (value < 0) *out++ = '-';
    int plain = exponent >= 0 && exponent < DECIMAL_DIGITS;
    int before = plain ? exponent + 1 : 1; /* digits before the point */
    for (int index = 0; index < before; index++) *out++ = index < length ? text[index] : '0';
    if (length > before) {
        *out++ = '.';
        for (int index = before; index < length; index++) *out++ = text[index];
    }
    if (!plain) {
        *out++ = 'e';
        if (exponent < 0) *out++ = '-', exponent = -exponent;
        if (exponent >= 10) *out++ = (char)('0' + exponent / 10);
        *out++ = (char)('0' + exponent % 10);
    }
    return out;
}

#endif
