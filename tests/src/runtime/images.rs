//! `runtime.v1.ImageService`.

use super::Shared;
use super::world::{FakeImage, Flavour, World, now};
use ebb_cri::wire::runtime as v1;
use ebb_cri::wire::runtime::image_service_server::ImageService;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl ImageService for Shared {
    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> Result<Response<v1::ListImagesResponse>, Status> {
        let list = |world: &mut World| {
            let images = world.images.values().map(|image| item(world, image)).collect();
            Ok(v1::ListImagesResponse { images })
        };
        self.serve("ListImages", "", list).await
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Result<Response<v1::ImageStatusResponse>, Status> {
        let name = request.into_inner().image.map(|spec| spec.image).unwrap_or_default();
        let status = |world: &mut World| {
            let found = world.images.values().find(|image| image.is_called(&name));
            let image = found.map(|image| item(world, image));
            Ok(v1::ImageStatusResponse { image, ..Default::default() })
        };
        self.serve("ImageStatus", &name, status).await
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Result<Response<v1::RemoveImageResponse>, Status> {
        let name = request.into_inner().image.map(|spec| spec.image).unwrap_or_default();
        let remove = |world: &mut World| {
            world.remove_image(&name)?;
            Ok(v1::RemoveImageResponse {})
        };
        self.serve("RemoveImage", &name, remove).await
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> Result<Response<v1::ImageFsInfoResponse>, Status> {
        let info = |world: &mut World| {
            let unpacked = world.images.values().flat_map(|image| &image.layers);
            let usage = |bytes: u64| v1::FilesystemUsage {
                timestamp: now(),
                fs_id: Some(v1::FilesystemIdentifier { mountpoint: world.image_fs.clone() }),
                used_bytes: Some(v1::UInt64Value { value: bytes }),
                inodes_used: Some(v1::UInt64Value { value: 0 }),
            };
            let written = world.containers.values().map(|container| container.written.0).sum();
            let images = usage(unpacked.map(|layer| layer.unpacked).sum());
            let containers =
                if world.flavour.is_crio() { vec![usage(written)] } else { Vec::new() };
            Ok(v1::ImageFsInfoResponse {
                image_filesystems: vec![images],
                container_filesystems: containers,
            })
        };
        self.serve("ImageFsInfo", "", info).await
    }
}

fn item(world: &World, image: &FakeImage) -> v1::Image {
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.tags.clone(),
        repo_digests: image.digests.clone(),
        size: image.size(),
        spec: None,
        // Older ones do not know of pins.
        pinned: image.pinned && world.flavour != Flavour::Containerd16,
    }
}
