// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"strconv"
)

// This file reads, checks and writes the images in prompts. No digest includes them: two traces that differ only in images are the same
// text workload.

// The limits of images: their number in a row, and, in pixels, a side, the product of both sides, and the sum of these over a row: 256 images of
// 1024x1024, or 16 of the largest size.
const (
	MaxImages    = 256
	MaxSide      = 8192
	MaxPixels    = 1 << 24
	MaxRowPixels = 16 * MaxPixels
)

const imageAdvice = "write each as [id, width, height], in unsigned integers, with 0, 0 if the size is unknown"

// images reads images: triples of an id, a width and a height. An empty list means no images.
func (p *parser) images(r *Row) *RowError {
	images, e := tuples(p, "images", 3, imageAdvice, func(n []uint64) (Image, bool) {
		inRange := max(n[1], n[2]) <= maxTokens
		return Image{ID: n[0], Width: int(n[1]), Height: int(n[2])}, inRange //nolint:gosec // refused where it is larger
	})
	if len(images) > 0 {
		r.Images = images
	}
	return e
}

// CheckSize describes what is wrong with the size of an image; empty = nothing.
func (i Image) CheckSize() string {
	switch {
	case i.Width == 0 && i.Height == 0:
	case i.Width < 1 || i.Height < 1:
		return "has a side of no pixels"
	case i.Width > MaxSide || i.Height > MaxSide || i.Width*i.Height > MaxPixels:
		return fmt.Sprintf("is too large: at most %d pixels a side and %d in all", MaxSide, MaxPixels)
	}
	return ""
}

// faultImages checks that images are only in a prompt that a replay generates or quotes, and are within the limits.
func faultImages(r *Row) *RowError {
	switch {
	case len(r.Images) == 0:
		return nil
	case !r.InputLength.Set && !r.TextInput.Set:
		return fault("images", "", "needs input_length or text_input: messages and payload contain their own images", "put the images there, or remove this field")
	case len(r.Images) > MaxImages:
		return fault("images", "", fmt.Sprintf("has %d images; at most %d are allowed", len(r.Images), MaxImages), "correct the row")
	}
	pixels := 0
	for i, image := range r.Images {
		if rule := image.CheckSize(); rule != "" {
			return fault("images", element(i), rule, imageAdvice)
		}
		pixels += image.Width * image.Height
	}
	if pixels > MaxRowPixels {
		return fault("images", "", fmt.Sprintf("has %d pixels in all; at most %d are allowed", pixels, MaxRowPixels), "leave out images, or make them smaller")
	}
	return nil
}

// images writes the images of a row.
func (o *object) images(images []Image) {
	if len(images) == 0 {
		return
	}
	o.key("images")
	for i, image := range images {
		sep := ", ["
		if i == 0 {
			sep = "[["
		}
		o.dst = strconv.AppendUint(append(o.dst, sep...), image.ID, 10)
		o.dst = strconv.AppendInt(append(o.dst, ", "...), int64(image.Width), 10)
		o.dst = append(strconv.AppendInt(append(o.dst, ", "...), int64(image.Height), 10), ']')
	}
	o.dst = append(o.dst, ']')
}
