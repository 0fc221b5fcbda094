#!/usr/bin/env python3
"""What scale_chart.py draws: a dot for each size in each panel, of figures as they are printed."""

import contextlib
import io
import unittest
import xml.etree.ElementTree as ElementTree

import scale_chart

NAMESPACE = "{http://www.w3.org/2000/svg}"


def rows():
    names = [name for name, _ in scale_chart.PANELS]
    return [{"chunks": chunks, **{name: chunks / 1000 for name in names}}
            for chunks in (10_000, 100_000, 1_000_000)]


class ScaleChart(unittest.TestCase):
    def test_each_panel_has_a_dot_for_each_size(self):
        drawing = ElementTree.fromstring(scale_chart.draw(rows()))
        titles = [text.text for text in drawing.iter(f"{NAMESPACE}text")
                  if text.get("class") == "title"]
        self.assertEqual(titles, [title for _, title in scale_chart.PANELS])
        dots = [dot.find(f"{NAMESPACE}title").text for dot in drawing.iter(f"{NAMESPACE}circle")]
        self.assertEqual(len(dots), 3 * len(scale_chart.PANELS))
        self.assertIn("100,000 chunks: 100", dots)

    def test_a_figure_of_zero_has_no_place_on_a_logarithmic_axis(self):
        with_zero = rows()
        with_zero[0]["lock_us_max"] = 0
        drawing = ElementTree.fromstring(scale_chart.draw(with_zero))
        self.assertEqual(len(list(drawing.iter(f"{NAMESPACE}circle"))),
                         3 * len(scale_chart.PANELS) - 1)

    def test_two_counts_side_by_side_have_their_figures_above_and_below(self):
        close = rows()
        close.append({**close[-1], "chunks": 1_150_000})
        drawing = ElementTree.fromstring(scale_chart.draw(close))
        places = [float(text.get("y")) for text in drawing.iter(f"{NAMESPACE}text")
                  if text.get("class") == "value"][:4]
        self.assertEqual(places[3] - places[2], 23)

    def test_wrong_usage_is_told(self):
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(scale_chart.main(), 2)
        self.assertIn("scale.svg", told.getvalue())


if __name__ == "__main__":
    unittest.main()
