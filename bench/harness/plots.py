"""Draws SVG: lines over a logarithmic or a named axis, grouped bars, and dots. Each drawing is rows of panels with a legend
under them."""

import math
import textwrap
from html import escape

COLOURS = ["#0b6e4f", "#e07a1f", "#3366cc", "#b8336a", "#7a5cc4", "#8c6d1f", "#1fa3a3", "#777777", "#c0392b", "#b0a000"]
# Name → place in COLOURS. A bench may fill it beforehand, so that a contender looks the same in all drawings.
PLACES = {}
INK, FAINT = "#222222", "#dddddd"
HEIGHT, WIDEST = 300, 1320
LEFT, RIGHT, TOP, BOTTOM = 72, 14, 40, 52


def colour(name):
    return COLOURS[PLACES.setdefault(name, len(PLACES)) % len(COLOURS)]


def nice(value):
    """A number as short as it can be read: 1500 → 1.5k."""
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.3g}"


def duration(microseconds):
    """10 → 10 µs, 2500 → 2.5 ms."""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.3g} µs"


class Scale:
    """Values to pixels, on a logarithmic axis that is cut to the data or a linear one from 0."""

    def __init__(self, values, start, end, log=True):
        positive = [value for value in values if value and value > 0] or [1]
        self.start, self.end, self.log = start, end, log
        if log:
            low, high = math.log10(min(positive)), math.log10(max(positive))
            pad = max(0.05 * (high - low), 0.08)
            self.low, self.high = low - pad, high + pad
        else:
            self.low, self.high = 0, max(positive) * 1.08

    def at(self, value):
        position = math.log10(value) if self.log else value
        return self.start + (position - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        if not self.log:
            step = 10 ** math.floor(math.log10(self.high / 4))
            step *= next(factor for factor in (1, 2, 5, 10) if self.high / (step * factor) <= 6)
            return [step * i for i in range(int(self.high / step) + 1)]
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        factors = (1,) if self.high - self.low > 2.5 else (1, 2, 5) if self.high - self.low > 0.7 else range(1, 10)
        ticks = [10.0**decade * factor for decade in decades for factor in factors]
        return [tick for tick in ticks if self.low <= math.log10(tick) <= self.high]


class Panel:
    """One coordinate system. Subclasses place the x values."""

    width = 430

    def __init__(self, title, x_label, y_label):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        # Times are in microseconds everywhere, and are written with the unit that suits them.
        self.write = duration if y_label == "time" else nice
        self.parts = []

    def add(self, name, **attributes):
        content = attributes.pop("content", None)
        words = " ".join(f'{key.replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
        self.parts.append(f"<{name} {words}/>" if content is None else f"<{name} {words}>{escape(content)}</{name}>")

    def text(self, x, y, content, anchor="middle", size=11, **more):
        more.setdefault("fill", INK)
        self.add("text", x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, font_size=size, content=content, **more)

    def frame(self, scale_y, x_ticks, floor=HEIGHT - BOTTOM):
        for tick in scale_y.ticks():
            y = scale_y.at(tick)
            self.add("line", x1=LEFT, x2=self.width - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", stroke=FAINT)
            self.text(LEFT - 6, y + 4, self.write(tick), "end")
        for x, label in x_ticks:
            self.add("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=floor, y2=floor + 4, stroke=INK)
            self.text(x, floor + 17, label)
        self.add("path", d=f"M{LEFT} {TOP}V{floor}H{self.width - RIGHT}", fill="none", stroke=INK)
        self.text((LEFT + self.width - RIGHT) / 2, 18, self.title, size=13, font_weight="bold")
        self.text((LEFT + self.width - RIGHT) / 2, HEIGHT - 12, self.x_label)
        middle = (TOP + floor) / 2
        self.text(16, middle, self.y_label, transform=f"rotate(-90 16 {middle})")


def near(points, others):
    """Whether two lines can hardly be told apart."""
    both = zip(points, others)
    return len(points) == len(others) and all(x == its and abs(y - value) <= 0.15 * value for (x, y), (its, value) in both)


def apart(marks):
    """Marks of an axis, (place, name): names that would touch the one before are left out."""
    end, kept = -math.inf, []
    for place, name in marks:
        half = len(name) * 3.4
        touches = place - half < end + 4
        kept.append((place, "" if touches else name))
        end = end if touches else place + half
    return kept


class Lines(Panel):
    """`series`: name → list of (x, y); x is logarithmic unless `even`, y if `log`. `dashed` has the same names, drawn thin and dashed."""

    def __init__(self, title, x_label, y_label, series, dashed=None, x_names=None, log=True, even=False):
        super().__init__(title, x_label, y_label)
        everything = [*series.values(), *(dashed or {}).values()]
        floor = HEIGHT - BOTTOM
        scale_x = Scale([x for points in everything for x, _ in points], LEFT, self.width - RIGHT, not even)
        scale_y = Scale([y for points in everything for _, y in points], floor, TOP, log)
        xs = sorted({x for points in everything for x, _ in points})
        self.frame(scale_y, apart([(scale_x.at(x), (x_names or {}).get(x, nice(x))) for x in xs]))
        seen = []
        for group, dash in ((series, None), (dashed or {}, "4 3")):
            for name, points in group.items():
                places = [(scale_x.at(x), scale_y.at(y)) for x, y in points if y > 0 or not log]
                style = {"stroke_dasharray": dash, "stroke_width": 1.2} if dash else {"stroke_width": 2}
                # What lies on another line shows it in its gaps.
                if not dash and any(near(points, before) for before in seen):
                    style["stroke_dasharray"] = "9 7"
                seen.append(points)
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
                self.add("polyline", points=path, fill="none", stroke=colour(name), **style)
                for x, y in places if not dash else ():
                    self.add("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3, fill=colour(name))
        self.names = list(series)


class Bars(Panel):
    """`series`: name → one value for each of `groups` (or None). `outlines`, of the same shape, are drawn empty behind
    the bars: 99th percentiles behind averages. The axis is logarithmic, and every bar and outline says its value."""

    width = 520

    def __init__(self, title, y_label, groups, series, outlines=None):
        super().__init__(title, "", y_label)
        floor = HEIGHT - BOTTOM
        # Wide enough for what is written over each bar.
        self.width = max(self.width, LEFT + RIGHT + 46 * len(groups) * len(series))
        values = [value for row in [*series.values(), *(outlines or {}).values()] for value in row if value]
        # Bars on a logarithmic axis start at a decade below the smallest, so that all can be seen.
        scale_y = Scale([*values, min(values) / 3, max(values) * 1.5], floor, TOP)
        span = (self.width - RIGHT - LEFT) / len(groups)
        self.frame(scale_y, [(LEFT + span * (i + 0.5), name) for i, name in enumerate(groups)])
        width = span * 0.8 / len(series)
        for index, (name, row) in enumerate(series.items()):
            for group, value in enumerate(row):
                if not value:
                    continue
                x = LEFT + span * (group + 0.1) + index * width
                top = scale_y.at(value)
                outline = (outlines or {}).get(name, [None] * len(row))[group]
                if outline:
                    highest = min(top, scale_y.at(outline))
                    self.rect(x, highest, width, floor, fill="none", stroke=colour(name))
                    self.text(x + width / 2, highest - 4, self.write(outline), size=8.5)
                self.rect(x, top, width, floor, fill=colour(name), stroke=colour(name))
                # Where there is an outline, the space above is its own.
                y, ink = (top + 11, "#ffffff") if outline else (top - 4, INK)
                self.text(x + width / 2, y, self.write(value), size=8.5, fill=ink)
        self.names = list(series)

    def rect(self, x, top, width, floor, **style):
        self.add("rect", x=f"{x + 1:.1f}", y=f"{top:.1f}", width=f"{width - 2:.1f}", height=f"{floor - top:.1f}", **style)


class Dots(Panel):
    """`series`: name → one value for each of `groups` (or None): a dot each, above names that stand upright. For many groups."""

    def __init__(self, title, y_label, groups, series):
        super().__init__(title, "", y_label)
        self.width = max(self.width, LEFT + RIGHT + 40 * len(groups))
        floor = HEIGHT - BOTTOM - 30
        scale_y = Scale([value for row in series.values() for value in row if value], floor, TOP)
        span = (self.width - RIGHT - LEFT) / len(groups)
        middles = [LEFT + span * (i + 0.5) for i in range(len(groups))]
        self.frame(scale_y, [(x, "") for x in middles], floor)
        for x, name in zip(middles, groups):
            self.text(x + 4, floor + 8, name, "end", 10, transform=f"rotate(-50 {x + 4:.1f} {floor + 8})")
            self.add("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=TOP, y2=floor, stroke=FAINT)
        for name, row in series.items():
            for x, value in zip(middles, row):
                if value:
                    self.add("circle", cx=f"{x:.1f}", cy=f"{scale_y.at(value):.1f}", r=4, fill=colour(name), fill_opacity=0.8)
        self.names = list(series)


def rows_of(panels):
    """Panels side by side, as many as can be read on a screen, and about as many in each row."""
    rows = fill(panels, len(panels))
    even = fill(panels, -(-len(panels) // max(len(rows), 1)))
    # Wide panels may need more rows then.
    return even if len(even) == len(rows) else rows


def fill(panels, most):
    """Rows of at most so many."""
    rows = []
    for panel in panels:
        if rows and len(rows[-1]) < most and sum(one.width for one in rows[-1]) + panel.width <= WIDEST:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def draw(path, title, panels, note="", command=""):
    """Writes one drawing: rows of panels, their common legend, a note under them, and the command that makes it."""
    rows = rows_of(panels)
    width = max(sum(panel.width for panel in row) for row in rows)
    floor = 34 + HEIGHT * len(rows)
    legend, x, row = [], 16, 0
    for name in dict.fromkeys(name for panel in panels for name in panel.names):
        length = 34 + 6.2 * len(name)
        if x + length > width - 10 and x > 16:
            x, row = 16, row + 1
        y = floor + 6 + row * 18
        legend.append(f'<rect x="{x:.0f}" y="{y}" width="12" height="10" fill="{colour(name)}"/>')
        legend.append(f'<text x="{x + 17:.0f}" y="{y + 9}" font-size="11" fill="{INK}">{escape(name)}</text>')
        x += length
    words = textwrap.wrap(note, int(width / 5.6))
    under = floor + (row + 1) * 18
    height = under + 10 + 14 * (len(words) + bool(command))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{width / 2}" y="22" font-size="{min(15, int(1.8 * width / len(title)))}" text-anchor="middle" '
        f'fill="{INK}">{escape(title)}</text>',
    ]
    for index, row in enumerate(rows):
        left = 0
        for panel in row:
            lines += [f'<g transform="translate({left} {34 + HEIGHT * index})">', *panel.parts, "</g>"]
            left += panel.width
    lines += legend
    for index, line in enumerate(words):
        lines.append(f'<text x="16" y="{under + 14 + 14 * index}" font-size="10" fill="#555555">{escape(line)}</text>')
    if command:
        y = under + 14 + 14 * len(words)
        lines.append(f'<text x="16" y="{y}" font-size="10" font-family="ui-monospace, monospace" fill="#555555">{escape(command)}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")
