//! Pictures of pages: small enough to be kept beside the documentation.

use std::{collections::HashMap, fs, io, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::PicturesError;
use crate::{
    chromium::{Chromium, Screen},
    file_error::io_error,
};

/// Colours of a picture. Pages have few; letters have more at their edges.
const COLOURS: usize = 48;

/// What a page is taken on.
const SCREENS: [(u32, u32); 3] = [(1440, 1000), (768, 1024), (390, 844)];

/// Takes what is loaded at three widths, light and dark, as `NAME-WIDTH-SCHEME.png`. The bytes of
/// all of them.
pub(super) async fn take(
    browser: &Chromium,
    name: &str,
    folder: &Path,
) -> Result<u64, PicturesError> {
    let mut bytes = 0;
    for (width, height) in SCREENS {
        for is_dark in [false, true] {
            let screen = Screen {
                width,
                height,
                is_dark,
            };
            browser.show_on(screen).await?;
            let shot = json!({"format": "png", "optimizeForSpeed": true});
            let shot = browser.tool("Page.captureScreenshot", shot).await?;
            let picture = STANDARD.decode(shot["data"].as_str().unwrap_or_default());
            let picture = picture
                .map_err(io::Error::other)
                .and_then(|png| reduce(&png));
            let scheme = if is_dark { "dark" } else { "light" };
            let file = folder.join(format!("{name}-{width}-{scheme}.png"));
            let picture = picture.map_err(io_error(&file))?;
            bytes += picture.len() as u64;
            fs::write(&file, picture).map_err(io_error(&file))?;
        }
    }
    Ok(bytes)
}

/// The same picture in its most frequent colours.
fn reduce(picture: &[u8]) -> io::Result<Vec<u8>> {
    let mut reader = png::Decoder::new(io::Cursor::new(picture)).read_info()?;
    let size = reader.output_buffer_size();
    let size = size.ok_or_else(|| io::Error::other("the picture is too large"))?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels)?;
    let step = info.color_type.samples();
    if info.bit_depth != png::BitDepth::Eight || step < 3 {
        return Err(io::Error::other("the picture has no three bytes a pixel"));
    }
    let colour = |pixel: &[u8]| [pixel[0], pixel[1], pixel[2]];
    let mut counts: HashMap<[u8; 3], u32> = HashMap::new();
    for pixel in pixels.chunks_exact(step) {
        *counts.entry(colour(pixel)).or_default() += 1;
    }
    let palette = palette(&counts);
    let nearest = |colour: &[u8; 3]| {
        let places = (0_u8..).zip(&palette);
        places
            .min_by_key(|(_, other)| distance(colour, other))
            .map_or(0, |(at, _)| at)
    };
    let places: HashMap<[u8; 3], u8> = counts
        .keys()
        .map(|colour| (*colour, nearest(colour)))
        .collect();
    let reduced: Vec<u8> = (pixels.chunks_exact(step))
        .map(|pixel| places.get(&colour(pixel)).copied().unwrap_or(0))
        .collect();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, info.width, info.height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette.concat());
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    encoder.write_header()?.write_image_data(&reduced)?;
    Ok(out)
}

fn distance(one: &[u8; 3], other: &[u8; 3]) -> u32 {
    let pairs = one.iter().zip(other);
    pairs.map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum()
}

/// The colours that most pixels have, but none close to one that more have.
fn palette(counts: &HashMap<[u8; 3], u32>) -> Vec<[u8; 3]> {
    let mut order: Vec<_> = counts.iter().collect();
    order.sort_by_key(|(colour, count)| (std::cmp::Reverse(**count), **colour));
    let mut palette: Vec<[u8; 3]> = Vec::new();
    for (colour, _) in order {
        if palette.len() == COLOURS {
            break;
        }
        if palette.iter().all(|other| distance(colour, other) > 150) || palette.len() < 12 {
            palette.push(*colour);
        }
    }
    palette
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_few_colours_stays_as_it_is() {
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, 2, 1);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[10, 20, 30, 200, 100, 0]).unwrap();
        drop(writer);
        let reduced = reduce(&png).unwrap();
        let mut decoder = png::Decoder::new(io::Cursor::new(&reduced));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, [10, 20, 30, 200, 100, 0]);
    }
}
